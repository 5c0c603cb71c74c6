from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.stats.gain import MIN_POINTS, area_gain, common_start, fitted_gain, steps_to_level
from tests.stats.curves import autocorrelated

NAN = math.nan


def test_a_straight_line_gains_what_it_rises() -> None:
    line = [0.2 + 0.01 * i for i in range(51)]
    assert fitted_gain(line).value == pytest.approx(0.5)
    assert area_gain(line).value == pytest.approx(0.25)
    assert fitted_gain(line).standard_error == pytest.approx(0, abs=1e-9)


def test_a_flat_curve_gains_nothing() -> None:
    assert fitted_gain([0.3] * 40).value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count, known", [(0, False), (MIN_POINTS - 1, False), (MIN_POINTS, True)])
def test_a_gain_needs_a_few_scores(count: int, known: bool) -> None:
    assert fitted_gain([0.1 * i for i in range(count)]).known is known


@pytest.mark.parametrize("missing, known", [(20, True), (21, False)])
def test_a_curve_that_misses_more_than_half_its_scores_has_no_gain(missing: int, known: bool) -> None:
    scores = [0.01 * i for i in range(40)]
    for i in range(missing):
        scores[(2 * i + 1) if i < 20 else 0] = NAN
    assert fitted_gain(scores).known is known


@pytest.mark.parametrize("hole", [NAN, math.inf, -math.inf])
def test_a_score_that_is_no_number_keeps_its_place_in_time(hole: float) -> None:
    line = [0.01 * i for i in range(40)]
    line[10:15] = [hole] * 5
    assert fitted_gain(line).value == pytest.approx(0.39)


def test_a_known_start_replaces_the_curves_own() -> None:
    line = [0.2 + 0.01 * i for i in range(51)]
    assert fitted_gain(line, start=0.1).value == pytest.approx(0.6)
    assert area_gain(line, start=0.1).value == pytest.approx(0.35)


def test_the_common_start_is_the_mean_of_the_first_values_and_missing_without_curves() -> None:
    assert common_start([[0.1 + 0.01 * i for i in range(30)], [0.3] * 30, [NAN] * 30]) == pytest.approx(0.2)
    assert common_start([[NAN] * 30]) is None


def test_a_saturating_curve_is_told_from_a_slower_one_by_its_area_and_not_by_its_ends() -> None:
    steps = np.arange(100) / 99
    slow, fast = 1 - np.exp(-5 * steps), 1 - np.exp(-10 * steps)
    assert fitted_gain(fast.tolist()).value < 1.05 * fitted_gain(slow.tolist()).value
    assert area_gain(fast.tolist(), 0.0).value > 1.1 * area_gain(slow.tolist(), 0.0).value


def test_the_steps_to_a_level_are_read_between_two_steps() -> None:
    line = [0.01 * i for i in range(101)]
    assert steps_to_level(line, 0.505).value == pytest.approx(51.5)
    assert steps_to_level(line, -1).value == 1
    assert math.isinf(steps_to_level(line, 2).value)
    assert not steps_to_level([], 0.5).known


@pytest.mark.parametrize("carry, steps", [(0.0, 60), (0.5, 100), (0.7, 200)])
def test_the_error_covers_the_gain_whatever_the_autocorrelation(carry: float, steps: int) -> None:
    rng = np.random.default_rng(7)
    line = np.linspace(0.1, 0.5, steps)
    hits = []
    for _ in range(150):
        gain = fitted_gain((line + 0.02 * autocorrelated(rng, steps, carry)).tolist())
        hits.append(abs(gain.value - 0.4) <= 1.98 * gain.standard_error)
    assert 0.89 <= np.mean(hits) <= 0.995


def test_the_autocorrelation_is_not_underestimated_in_short_curves() -> None:
    rng = np.random.default_rng(11)
    errors, values = [], []
    for _ in range(400):
        gain = fitted_gain((0.02 * autocorrelated(rng, 40, 0.6)).tolist())
        errors.append(gain.standard_error)
        values.append(gain.value)
    assert 0.95 <= np.mean(errors) / np.std(values) <= 1.4


@given(
    st.lists(st.floats(-5, 5), min_size=8, max_size=60),
    st.sampled_from([2.0**k for k in range(-6, 7)]),
    st.floats(-10, 10),
)
def test_a_gain_scales_with_the_reward_and_ignores_its_zero(scores: list[float], scale: float, shift: float) -> None:
    plain, moved = fitted_gain(scores), fitted_gain([scale * s + shift for s in scores])
    assert moved.value == pytest.approx(scale * plain.value, abs=1e-9 * max(1, scale))
    assert area_gain([scale * s for s in scores]).value == pytest.approx(
        scale * area_gain(scores).value, abs=1e-9 * scale
    )


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=40))
def test_a_gain_has_an_answer_for_every_series(scores: list[float]) -> None:
    gain = fitted_gain(scores)
    assert gain.known or math.isnan(gain.value) or math.isinf(gain.value)
