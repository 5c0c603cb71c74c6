from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.curve import Curve
from sweep.stats.efficiency import efficiency, pooled_spread, pooled_variance, ratio, run_efficiency
from sweep.stats.estimate import Estimate, Spread
from tests.stats.curves import made_curve


def exact(value: float) -> Estimate:
    return Estimate(value, 0.0, 10)


def scaled(curve: Curve, reward: float = 1.0, time: float = 1.0, shift: float = 0.0) -> Curve:
    return replace(
        curve,
        score=tuple(reward * s + shift for s in curve.score),
        step_seconds=tuple(time * s for s in curve.step_seconds),
    )


def test_eta_is_gain_per_second_over_gain_per_second() -> None:
    candidates = [made_curve(s, gain=0.6, seconds=1.5, noise=1e-4) for s in range(4)]
    bases = [made_curve(s, gain=0.4, seconds=2.0, noise=1e-4) for s in range(4)]
    assert efficiency(candidates, bases, warmup_steps=0).value == pytest.approx((0.6 / 1.5) / (0.4 / 2.0), rel=0.03)


def test_one_run_an_arm_gives_a_ratio_whose_spread_is_only_assumed() -> None:
    seen = ratio([exact(1.1)], [exact(1.0)])
    assert seen.value == pytest.approx(1.1)
    assert seen.degrees == 0
    assert seen.low < 0.8 < 1.5 < seen.high


def test_two_seeds_have_one_degree_of_freedom_and_the_spread_of_their_ratios() -> None:
    seen = ratio([exact(1.1), exact(1.3)], [exact(1.0), exact(1.0)])
    spread = np.std([math.log(1.1), math.log(1.3)], ddof=1)
    assert seen.degrees == 1
    assert seen.standard_error == pytest.approx(spread / math.sqrt(2))


def test_what_a_seed_does_to_both_arms_cancels() -> None:
    luck = [1.0, 1.4, 0.7, 1.1]
    seen = ratio([exact(1.2 * x) for x in luck], [exact(x) for x in luck])
    assert seen.value == pytest.approx(1.2)
    assert seen.low == pytest.approx(1.2, rel=1e-6)


def test_the_errors_within_the_runs_are_a_floor() -> None:
    noisy = [Estimate(1.0, 0.1, 50), Estimate(1.0, 0.1, 50)]
    assert ratio(noisy, noisy).standard_error == pytest.approx(math.sqrt(0.02 / 2))


def test_the_pooled_spread_replaces_the_arms_own_when_more_is_known_about_it() -> None:
    arms = [exact(1.0), exact(1.2)], [exact(1.0), exact(1.0)]
    assert ratio(*arms, pooled_variance=Spread(0.0025, 12)).standard_error == pytest.approx(0.05)
    assert ratio(*arms, pooled_variance=Spread(0.0025, 12)).degrees == 12
    assert ratio(*arms, pooled_variance=Spread(0.0025, 0)).degrees == 1


@pytest.mark.parametrize("lost", [0.0, -0.3])
def test_a_baseline_that_gained_nothing_has_no_ratio_and_says_so(lost: float) -> None:
    seen = ratio([exact(1.0), exact(1.0)], [exact(1.0), exact(lost)])
    assert not seen.known
    assert "must gain" in seen.reason


def test_a_candidate_that_lost_reward_has_a_ratio_below_zero() -> None:
    seen = ratio([exact(-0.5), exact(-0.4), exact(-0.6)], [exact(1.0)] * 3)
    assert seen.value == pytest.approx(-0.5)
    assert seen.low < -0.5 < seen.high < 0
    assert not seen.logarithmic


def test_a_seed_without_a_measurement_is_left_out_of_both_arms() -> None:
    unknown = Estimate(math.nan, math.nan, 0)
    seen = ratio([exact(1.1), unknown, exact(1.3)], [exact(1.0), exact(9.0), exact(1.0)])
    assert seen.value == pytest.approx(math.sqrt(1.1 * 1.3))
    assert not ratio([unknown], [exact(1.0)]).known


def test_no_runs_at_all_give_no_ratio() -> None:
    assert not efficiency([], [], warmup_steps=5).known
    assert not efficiency([Curve()], [Curve()], warmup_steps=5).known


def test_the_run_efficiency_of_a_losing_run_is_negative() -> None:
    assert run_efficiency(made_curve(0, gain=-0.4), warmup_steps=0).value < 0


def test_pooling_finds_the_spread_that_seeds_leave_in_paired_arms() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(size=200) * 0.5
    arms = [[exact(float(np.exp(m + s + 0.05 * rng.normal()))) for s in seeds] for m in (0.0, 1.0, 2.0)]
    spread = pooled_spread(arms)
    assert spread is not None
    assert math.sqrt(spread.variance) == pytest.approx(0.05, rel=0.1)
    assert spread.degrees == 398


def test_two_arms_pool_to_the_spread_of_their_own_pairs() -> None:
    ones, zeros = [exact(1.1), exact(1.3), exact(1.2)], [exact(1.0), exact(1.05), exact(0.9)]
    spread = pooled_spread([ones, zeros])
    assert spread is not None
    assert ratio(ones, zeros, pooled_variance=spread).standard_error == pytest.approx(ratio(ones, zeros).standard_error)


def test_one_replicated_arm_gives_its_whole_spread_and_no_replicates_give_none() -> None:
    spread = pooled_spread([[exact(1.0), exact(1.2), exact(0.8)], [exact(3.0)]])
    assert spread is not None
    assert spread.variance == pytest.approx(np.var(np.log([1.0, 1.2, 0.8]), ddof=1))
    assert pooled_spread([[exact(1.0)], [exact(2.0)]]) is None
    assert pooled_spread([]) is None


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_in_which_seeds_ended_changes_nothing(shuffle: random.Random) -> None:
    pairs = [(made_curve(s, gain=0.5), made_curve(s + 50)) for s in range(5)]
    mixed = list(pairs)
    shuffle.shuffle(mixed)
    one = efficiency([c for c, _ in pairs], [b for _, b in pairs], warmup_steps=2)
    two = efficiency([c for c, _ in mixed], [b for _, b in mixed], warmup_steps=2)
    assert two.value == pytest.approx(one.value)
    assert (two.low, two.high) == pytest.approx((one.low, one.high))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(-10, 10))
def test_units_of_reward_and_time_change_nothing(reward: float, time: float, shift: float) -> None:
    ones, zeros = [made_curve(s, gain=0.5) for s in range(3)], [made_curve(s + 50) for s in range(3)]
    plain = efficiency(ones, zeros, warmup_steps=2)
    moved = efficiency(
        [scaled(c, reward, time, shift) for c in ones], [scaled(c, reward, time, shift) for c in zeros], warmup_steps=2
    )
    assert (moved.value, moved.low, moved.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_pooled_variance_takes_curves_of_arms_with_different_numbers_of_seeds() -> None:
    arms = [[made_curve(s) for s in range(4)], [made_curve(s + 9, gain=0.6) for s in range(2)], [made_curve(30)]]
    spread = pooled_variance(arms, warmup_steps=2)
    assert spread is not None
    assert spread.degrees == 1
