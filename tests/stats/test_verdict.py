from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.stats.efficiency import ratio
from sweep.stats.estimate import Estimate, Interval, interval, no_interval
from sweep.stats.spending import SPENT_SHARE, level_at, nominal_levels
from sweep.stats.verdict import DEFAULT_SEEDS, Comparison, Verdict, compare

APART = (Verdict.BETTER, Verdict.WORSE)


def seen(value: float, error: float, degrees: float = 100.0) -> Interval:
    return interval(value, error, degrees, logarithmic=True, level=0.95)


def runs(values: np.ndarray) -> list[Estimate]:
    return [Estimate(float(v), 0.0, 10) for v in values]


def follow(ones: np.ndarray, zeros: np.ndarray, most: int = DEFAULT_SEEDS) -> tuple[Comparison, int]:
    """The verdict when a seed is added to both arms until there is one, and how many that took."""
    for pairs in range(1, most + 1):
        result = compare(ratio(runs(ones[:pairs]), runs(zeros[:pairs])), looks=pairs, max_looks=most)
        if result.verdict is not Verdict.NOT_ENOUGH_DATA:
            return result, pairs
    return result, most


def simulated(cv: float, effect: float, campaigns: int = 400, seed: int = 0) -> list[tuple[Comparison, int]]:
    rng = np.random.default_rng(seed)
    spread = math.sqrt(math.log1p(cv**2))
    shape = (campaigns, DEFAULT_SEEDS)
    ones = (1 + effect) * np.exp(spread * rng.normal(size=shape))
    zeros = np.exp(spread * rng.normal(size=shape))
    return [follow(a, b) for a, b in zip(ones, zeros, strict=True)]


def share(found: list[tuple[Comparison, int]], *verdicts: Verdict) -> float:
    return sum(c.verdict in verdicts for c, _ in found) / len(found)


def test_a_far_ratio_is_better_or_worse() -> None:
    assert compare(seen(1.3, 0.01), looks=4, max_looks=8).verdict is Verdict.BETTER
    assert compare(seen(0.7, 0.01), looks=4, max_looks=8).verdict is Verdict.WORSE


def test_a_ratio_sure_to_lie_within_the_margin_is_indistinguishable() -> None:
    found = compare(seen(1.004, 0.004), looks=4, max_looks=8)
    assert found.verdict is Verdict.INDISTINGUISHABLE
    assert "equal within 5%" in found.reason


def test_an_open_ratio_asks_for_another_seed_until_the_last_look() -> None:
    assert compare(seen(1.06, 0.03), looks=5, max_looks=8).verdict is Verdict.NOT_ENOUGH_DATA
    last = compare(seen(1.06, 0.03), looks=8, max_looks=8)
    assert last.verdict is Verdict.INDISTINGUISHABLE
    assert "could not tell" in last.reason


def test_a_hopeless_comparison_ends_before_its_last_look() -> None:
    found = compare(seen(1.0, 0.1), looks=4, max_looks=8)
    assert found.verdict is Verdict.INDISTINGUISHABLE
    assert "unlikely" in found.reason


def test_the_boundary_of_a_look_is_where_its_level_is() -> None:
    from scipy.stats import norm

    bound = float(norm.ppf(1 - level_at(6, 8, 0.05) / 2)) * 0.05
    above, below = math.exp(bound + 1e-6), math.exp(bound - 1e-6)
    assert compare(seen(above, 0.05, math.inf), looks=6, max_looks=8).verdict is Verdict.BETTER
    assert compare(seen(below, 0.05, math.inf), looks=6, max_looks=8).verdict is Verdict.NOT_ENOUGH_DATA
    assert compare(seen(1 / above, 0.05, math.inf), looks=6, max_looks=8).verdict is Verdict.WORSE


def test_one_seed_decides_nothing() -> None:
    alone = ratio(runs(np.array([9.0])), runs(np.array([1.0])))
    assert compare(alone, looks=1, max_looks=8).verdict is Verdict.NOT_ENOUGH_DATA
    assert compare(alone, looks=1, max_looks=1).verdict is Verdict.INDISTINGUISHABLE


def test_a_ratio_that_does_not_exist_is_never_decided() -> None:
    found = compare(no_interval("the baseline gained nothing"), looks=8, max_looks=8)
    assert found.verdict is Verdict.NOT_ENOUGH_DATA
    assert found.reason == "the baseline gained nothing"
    assert math.isnan(found.low)


def test_arms_without_any_noise_are_told_apart_or_called_equal() -> None:
    ones = runs(np.array([1.1, 1.1]))
    assert compare(ratio(ones, runs(np.array([1.0, 1.0]))), looks=2, max_looks=8).verdict is Verdict.BETTER
    assert compare(ratio(ones, ones), looks=2, max_looks=8).verdict is Verdict.INDISTINGUISHABLE


def test_a_candidate_that_loses_reward_in_every_seed_is_worse() -> None:
    lost = ratio(runs(np.array([-0.5, -0.52, -0.48, -0.51])), runs(np.array([1.0, 1.0, 1.0, 1.0])))
    assert compare(lost, looks=4, max_looks=8).verdict is Verdict.WORSE


def test_better_always_comes_with_an_interval_above_one() -> None:
    better = [c for c, _ in simulated(0.05, 0.1, 150) if c.verdict is Verdict.BETTER]
    assert better
    assert all(c.low > 1 for c in better)


@pytest.mark.parametrize("cv", [0.03, 0.05, 0.10, 0.20])
def test_equal_arms_are_seldom_moved_apart_at_any_noise(cv: float) -> None:
    # 5 % of 400 campaigns and two standard deviations of that share.
    assert share(simulated(cv, 0.0), *APART) <= 0.05 + 0.022


@pytest.mark.parametrize("cv", [0.03, 0.05])
def test_a_true_ten_percent_is_found_within_the_default_seeds(cv: float) -> None:
    assert share(simulated(cv, 0.10), Verdict.BETTER) >= 0.80 - 0.04


@pytest.mark.parametrize("effect", [0.0, 0.1, 0.4])
def test_the_interval_at_the_verdict_covers_the_truth(effect: float) -> None:
    found = simulated(0.05, effect)
    assert 0.925 <= sum(c.low <= 1 + effect <= c.high for c, _ in found) / len(found) <= 0.985


def test_large_effects_and_equal_arms_take_few_seeds() -> None:
    assert np.mean([n for _, n in simulated(0.05, 0.4, 100)]) < 5
    assert np.mean([n for _, n in simulated(0.20, 0.0, 100)]) < 5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_a_verdict_does_not_depend_on_the_order_of_seeds(values: list[float], shuffle: random.Random) -> None:
    pairs = [(v, 1.0 + 0.1 * i) for i, v in enumerate(values)]
    mixed = list(pairs)
    shuffle.shuffle(mixed)
    first, second = (
        compare(ratio(runs(np.array([a for a, _ in p])), runs(np.array([b for _, b in p]))), looks=len(p), max_looks=8)
        for p in (pairs, mixed)
    )
    assert first.verdict is second.verdict


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=8), st.integers(-20, 20))
def test_a_verdict_does_not_depend_on_the_unit(values: list[float], power: int) -> None:
    ones, zeros = np.array(values), np.ones(len(values))
    plain = compare(ratio(runs(ones), runs(zeros)), looks=len(values), max_looks=8)
    moved = compare(ratio(runs(ones * 2.0**power), runs(zeros * 2.0**power)), looks=len(values), max_looks=8)
    assert plain == moved


@settings(max_examples=200, deadline=None)
@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1e6),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_every_interval_has_a_verdict(
    value: float, error: float, degrees: int, looks: int, most: int, logarithmic: bool
) -> None:
    if logarithmic and not value > 0:
        value = math.nan
    found = compare(Interval(value, value, value, error, degrees, logarithmic), looks=looks, max_looks=most)
    assert isinstance(found.verdict, Verdict)
    assert found.reason


def test_the_levels_of_all_looks_spend_the_stated_rate_together() -> None:
    rng = np.random.default_rng(1)
    sums = np.cumsum(rng.normal(size=(200_000, 8)), axis=1) / np.sqrt(np.arange(1, 9))
    tails = np.vectorize(lambda level: -_normal_quantile(level / 2))(np.array(nominal_levels(8, 0.05)))
    assert np.mean((np.abs(sums) > tails).any(axis=1)) == pytest.approx(0.05, abs=0.002)


def test_later_looks_may_spend_more_and_one_look_spends_all() -> None:
    levels = [level_at(n, 8, 0.05) for n in range(1, 9)]
    assert levels == sorted(levels)
    assert level_at(0, 8, 0.05) == 0
    assert level_at(9, 8, 0.05) == levels[-1]
    assert level_at(1, 1, 0.05) == pytest.approx(0.05 * SPENT_SHARE, rel=1e-3)


def _normal_quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))
