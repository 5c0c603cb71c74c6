from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.stats.bracket import MOST_POINTS, NEAR_SHARE, Probe, Settled, advance

RANGE = {"low": -3.0, "high": 3.0}


def walk(
    truth: Callable[[float], float], *, start: float = 0.0, step: float = 1.0, most_points: int = MOST_POINTS
) -> tuple[dict[float, float], Settled]:
    """Follow the walk to its end."""
    scores: dict[float, float] = {}
    for _ in range(most_points + 1):
        found = advance(scores, start=start, step=step, most_points=most_points, **RANGE)
        if isinstance(found, Settled):
            return scores, found
        scores[found.position] = truth(found.position)
    raise AssertionError("the walk never settled")


@pytest.mark.parametrize("best", [-2.4, -1.3, -0.4, 0.3, 0.5, 1.6, 2.2])
def test_the_peak_of_a_parabola_is_found(best: float) -> None:
    scores, found = walk(lambda x: -((x - best) ** 2))
    assert abs(found.position - best) <= NEAR_SHARE
    assert len(scores) <= MOST_POINTS


@pytest.mark.parametrize("best", [-2.0, 0.4, 1.7])
@pytest.mark.parametrize("power", [1.3, 3.0])
def test_a_lopsided_wedge_or_plateau_is_nearly_found_too(best: float, power: float) -> None:
    def truth(x: float) -> float:
        return -(0.3 if x > best else 0.6) * abs(x - best) ** power

    _, found = walk(truth)
    assert truth(found.position) > -0.12


def test_the_first_two_probes_are_the_start_and_the_first_move() -> None:
    assert advance({}, start=0.5, step=-0.4, **RANGE) == Probe(0.5, "start")
    second = advance({0.5: 1.0}, start=0.5, step=-0.4, **RANGE)
    assert isinstance(second, Probe)
    assert second.position == pytest.approx(0.1)


@pytest.mark.parametrize("first, following", [(1.1, 2.0), (0.9, -1.0)])
def test_it_goes_on_where_it_got_better_and_turns_round_where_not(first: float, following: float) -> None:
    found = advance({0.0: 1.0, 1.0: first}, start=0.0, step=1.0, **RANGE)
    assert isinstance(found, Probe)
    assert found.position == following


def test_a_best_value_beyond_the_range_ends_at_its_edge() -> None:
    scores, found = walk(lambda x: x, most_points=10)
    assert found.position == 3.0
    assert max(scores) == 3.0


@pytest.mark.parametrize("offset, again", [(NEAR_SHARE * 0.9, False), (NEAR_SHARE * 1.1, True)])
def test_a_peak_next_to_a_measured_value_is_not_measured_again(offset: float, again: bool) -> None:
    points = {x: -((x - offset) ** 2) for x in (-1.0, 0.0, 1.0)}
    found = advance(points, start=0.0, step=1.0, **RANGE)
    assert isinstance(found, Probe) is again


def test_a_dead_value_counts_as_the_lowest() -> None:
    found = advance({0.0: 1.0, 1.0: math.nan}, start=0.0, step=1.0, **RANGE)
    assert isinstance(found, Probe)
    assert found.position == -1.0
    dead = advance({0.0: math.nan, 1.0: math.nan, -1.0: math.nan}, start=0.0, step=1.0, **RANGE)
    assert isinstance(dead, Settled)
    assert math.isnan(dead.score)


def test_the_budget_of_points_is_kept() -> None:
    for most in (2, 3, 4, 6):
        scores, found = walk(lambda x: x, most_points=most)
        assert len(scores) <= most
        assert found.position in scores


@pytest.mark.parametrize(("most", "values"), [(2, 2), (3, 3), (4, 4)])
def test_a_small_budget_is_used_in_full(most: int, values: int) -> None:
    scores, _ = walk(lambda x: -((x + 1.4) ** 2), most_points=most)
    assert len(scores) == values


def test_one_noisy_run_misleads_the_peak_less_than_it_would_as_a_winner() -> None:
    rng = np.random.default_rng(0)
    lost, lost_by_highest = [], []
    for _ in range(300):
        best = rng.uniform(-1.5, 1.5)

        def truth(x: float, best: float = best) -> float:
            return -0.1 * (x - best) ** 2

        scores, found = walk(lambda x, t=truth: t(x) + 0.05 * rng.normal())  # type: ignore[misc]
        lost.append(-truth(found.position))
        lost_by_highest.append(-truth(max(scores, key=lambda x: scores[x])))
    assert np.mean(lost) < 0.8 * np.mean(lost_by_highest)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.floats(-3, 3), st.floats(allow_nan=True, allow_infinity=True), max_size=8),
    st.floats(-3, 3),
    st.sampled_from([-1.0, -0.35, 0.35, 0.75, 10.0]),
    st.integers(2, 8),
    st.randoms(use_true_random=False),
)
def test_every_history_has_an_answer_in_the_range_whatever_its_order(
    scores: dict[float, float], start: float, step: float, most: int, shuffle: random.Random
) -> None:
    found = advance(scores, start=start, step=step, most_points=most, **RANGE)
    assert -3 <= found.position <= 3
    mixed = list(scores.items())
    shuffle.shuffle(mixed)
    again = advance(dict(mixed), start=start, step=step, most_points=most, **RANGE)
    assert repr(again) == repr(found)


@settings(max_examples=100, deadline=None)
@given(st.floats(-2.5, 2.5), st.floats(0.01, 100), st.floats(-100, 100))
def test_unit_and_zero_of_the_score_change_no_position(best: float, scale: float, shift: float) -> None:
    plain, _ = walk(lambda x: -(abs(x - best) ** 1.5))
    moved, _ = walk(lambda x: shift - scale * abs(x - best) ** 1.5)
    assert sorted(moved) == pytest.approx(sorted(plain), abs=1e-4)


def test_points_that_bend_upwards_have_no_peak_and_the_highest_wins() -> None:
    valley = {-2.0: 0.9, -1.0: 0.0, 0.0: 0.1, 1.0: 0.05}
    found = advance(valley, start=0.0, step=1.0, **RANGE)
    assert isinstance(found, Settled)
    assert (found.position, found.score) == (-2.0, 0.9)
