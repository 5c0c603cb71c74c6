from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.stats.timing import MIN_STEPS, rollout_share, step_time
from tests.stats.curves import autocorrelated


def test_warm_up_steps_do_not_count() -> None:
    assert step_time([60.0, 30.0] + [2.0] * 20, 2).value == 2.0
    assert step_time([60.0] * 15 + [2.0] * 10, 0).value == 60.0


def test_a_hiccup_hardly_moves_the_step_time() -> None:
    assert step_time([2.0] * 50 + [900.0], 0).value == 2.0


@pytest.mark.parametrize("steps, known", [(MIN_STEPS - 1, False), (MIN_STEPS, True)])
def test_a_step_time_needs_a_few_steps_after_the_warm_up(steps: int, known: bool) -> None:
    assert step_time([1.0] * (5 + steps), 5).known is known


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_time_that_cannot_be_is_left_out(bad: float) -> None:
    assert step_time([bad, 3.0, 3.0, bad, 3.0], 0).value == 3.0


def test_the_error_covers_the_typical_time_under_autocorrelation() -> None:
    rng = np.random.default_rng(3)
    hits = []
    for _ in range(200):
        time = step_time(np.exp(0.15 * autocorrelated(rng, 200, 0.4)).tolist(), 5)
        hits.append(abs(time.value - 1.0) <= 2.26 * time.standard_error)
    assert 0.9 <= np.mean(hits) <= 0.99


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=40), st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_a_step_time_scales_with_the_clock(seconds: list[float], scale: float) -> None:
    plain, moved = step_time(seconds, 0), step_time([scale * s for s in seconds], 0)
    assert moved.value == pytest.approx(scale * plain.value)
    assert moved.standard_error == pytest.approx(scale * plain.standard_error, abs=1e-12)


def test_the_share_of_generation_is_of_the_time_of_steps_that_logged_both() -> None:
    assert rollout_share([31.27], [43.64]) == pytest.approx(0.7165, abs=1e-4)
    assert rollout_share([1.0, 3.0, math.nan], [2.0, 4.0, 9.0]) == pytest.approx(4 / 6)
    assert math.isnan(rollout_share([], [])) and math.isnan(rollout_share([math.nan], [1.0]))
