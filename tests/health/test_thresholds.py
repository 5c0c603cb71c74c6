"""Both sides of a threshold: just short of it the rule says nothing, just beyond it the finding is there.

An edge makes the curves of a run from the one number that the limit is about; the sides lie a tenth off the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from sweep.health.code import Code
from sweep.health.finding import Severity
from sweep.health.limits import DEFAULT
from tests.health.curves import ENTROPY, KL, NORM, SCORE, codes, line, noisy, the, told

Columns = dict[str, Sequence[float | None]]
CLIPPED, CUT, UPDATE_KL = "actor/pg_clipfrac", "response_length/clip_ratio", "actor/ppo_kl"
SEQUENCE_KL, SECONDS, MEMORY = "objective/kl", "timing_s/step", "actor/perf/max_memory_reserved_gb"
GAP, CORRELATION = "training/rollout_probs_diff_mean", "training/rollout_actor_probs_pearson_corr"
HIGHEST, LOWEST = "critic/advantages/max", "critic/advantages/min"
RISING = line(0.2, 0.8, 100)


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a rule begins to speak; `above` says on which side of the limit."""

    name: str
    code: Code
    limit: float
    columns: Callable[[float], Columns]
    above: bool = True


def flat(value: float, points: int = 100) -> list[float]:
    """The same at every point."""
    return [value] * points


def then(before: float, after: float, points: int = 100) -> list[float]:
    """One level over the first half, another over the second."""
    return flat(before, points // 2) + flat(after, points - points // 2)


def climb(level: float, share: float, points: int = 100) -> list[float]:
    """Rises by that share of its last level over the points; the last level is the median that rules look at."""
    slope = share * level / (points - 1)
    return [level + slope * (i - (points - 1 - 4.5)) for i in range(points)]


def validated(best: float, last: float) -> Columns:
    """A reward that rises throughout, beside three validations."""
    marks: list[float | None] = [None] * 100
    marks[9], marks[49], marks[99] = 0.3, best, last
    return {SCORE: RISING, "val-core/gsm8k/acc/mean@1": marks}


def bursts(share: float, level: float, points: int = 200) -> Columns:
    """Gradient norms of 0.2 with single points at the level, evenly spread, and none of them last."""
    count = round(share * points)
    where = {round((i + 0.5) * points / count) for i in range(count)}
    return {NORM: [level if i in where else 0.2 for i in range(points)]}


LIMITS = DEFAULT
EDGES = (
    Edge("clip fraction", Code.UPDATE_TOO_LARGE, LIMITS.clip_fraction, lambda x: {CLIPPED: flat(x)}),
    Edge("update KL", Code.UPDATE_TOO_LARGE, LIMITS.update_kl, lambda x: {UPDATE_KL: flat(x)}),
    Edge(
        "update KL jump",
        Code.UPDATE_TOO_LARGE,
        LIMITS.update_kl_jump,
        lambda x: {UPDATE_KL: [*flat(0.0009), 0.0009 * x, 0.0009 * x]},
    ),
    Edge("rollout gap", Code.ROLLOUT_MISMATCH, LIMITS.rollout_gap, lambda x: {GAP: flat(x)}),
    Edge(
        "rollout correlation",
        Code.ROLLOUT_MISMATCH,
        1 - LIMITS.rollout_correlation,
        lambda x: {CORRELATION: flat(1 - x)},
    ),
    Edge("some cut", Code.LENGTH_TRUNCATED, LIMITS.cut_some, lambda x: {CUT: flat(x)}),
    Edge("all cut", Code.LENGTH_SATURATED, LIMITS.cut_all, lambda x: {CUT: flat(x)}),
    Edge("entropy floor", Code.ENTROPY_COLLAPSE, LIMITS.entropy_floor, lambda x: {ENTROPY: flat(x)}, above=False),
    Edge(
        "entropy fall",
        Code.ENTROPY_COLLAPSE,
        LIMITS.entropy_fall,
        lambda x: {ENTROPY: then(0.03 * x, 0.03)},
    ),
    Edge("low entropy", Code.ENTROPY_COLLAPSE, LIMITS.entropy_low, lambda x: {ENTROPY: then(1.0, x)}, above=False),
    Edge(
        "entropy rise",
        Code.ENTROPY_RISING,
        LIMITS.entropy_rise,
        lambda x: {ENTROPY: flat(0.4, 10) + line(0.4, 0.4 * x, 80) + flat(0.4 * x, 10)},
    ),
    Edge(
        "entropy ceiling",
        Code.ENTROPY_EXPLOSION,
        LIMITS.entropy_ceiling,
        lambda x: {ENTROPY: flat(0.2, 10) + line(0.2, x, 80) + flat(x, 10)},
    ),
    Edge("KL climb", Code.KL_EXPLOSION, LIMITS.kl_climb, lambda x: {KL: climb(0.5, x)}),
    Edge("KL explosion", Code.KL_EXPLOSION, LIMITS.kl_explosion, lambda x: {KL: climb(x, 0.5)}),
    Edge("negative KL a token", Code.KL_NEGATIVE, -LIMITS.kl_negative[0], lambda x: {KL: flat(-x)}),
    Edge("negative KL a sequence", Code.KL_NEGATIVE, -LIMITS.kl_negative[1], lambda x: {SEQUENCE_KL: flat(-x)}),
    Edge("KL a sequence", Code.KL_HIGH, LIMITS.kl_sequence_band[1], lambda x: {SEQUENCE_KL: flat(x)}),
    Edge(
        "KL with the reward lost",
        Code.KL_EXPLOSION,
        LIMITS.kl_joint_share * LIMITS.kl_explosion,
        lambda x: {KL: climb(x, 0.5), SCORE: then(0.6, 0.2)},
    ),
    Edge("excursions", Code.HIDDEN_OSCILLATION, LIMITS.oscillation_share, lambda x: bursts(x, 3.0)),
    Edge(
        "size of excursions",
        Code.HIDDEN_OSCILLATION,
        LIMITS.oscillation_factor,
        lambda x: {NORM: [0.5 * x if i % 10 == 5 else 0.5 * (10 - x) / 9 for i in range(300)]},
    ),
    Edge(
        "reward's gain lost",
        Code.REWARD_DROP,
        LIMITS.drop_share,
        lambda x: {SCORE: [*flat(0.2), *flat(0.8, 200), *flat(0.8 - 0.6 * x, 200)]},
    ),
    Edge(
        "reward under its start",
        Code.REWARD_DROP,
        LIMITS.drop_relative,
        lambda x: {SCORE: then(0.5, 0.5 * (1 - x))},
    ),
    Edge(
        "validation fell",
        Code.REWARD_HACKING,
        LIMITS.hacking_validation_fall,
        lambda x: validated(0.6, 0.6 * (1 - x)),
    ),
    Edge("step time", Code.STEP_TIME_JUMP, LIMITS.step_time_jump, lambda x: {SECONDS: then(10.0, 10.0 * x)}),
    Edge(
        "memory creep",
        Code.MEMORY_CREEP,
        LIMITS.creep_gib_per_100_steps,
        lambda x: {MEMORY: line(40.0, 40.0 + x * 1.99, 200)},
    ),
    Edge(
        "advantages that are zero",
        Code.ZERO_ADVANTAGE,
        LIMITS.zero_advantage,
        lambda x: {HIGHEST: flat(x), LOWEST: flat(-x)},
        above=False,
    ),
)


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)
def test_a_rule_speaks_beyond_its_limit_only(edge: Edge) -> None:
    silent, spoken = (0.9, 1.1) if edge.above else (1.1, 0.9)
    assert edge.code not in codes(told(edge.columns(silent * edge.limit)))
    assert edge.code in codes(told(edge.columns(spoken * edge.limit)))


@pytest.mark.parametrize("count", [2, 3])
def test_separate_gradient_episodes_that_fall_back_are_an_explosion_from_the_third_on(count: int) -> None:
    norms = flat(0.5, 120)
    for episode in range(count):
        start = 10 + 30 * episode
        norms[start : start + 9] = flat(20.0, 9)
    assert (Code.GRAD_EXPLOSION in codes(told({NORM: norms}))) is (count == 3)


@pytest.mark.parametrize("count", [2, 3])
def test_a_hidden_oscillation_has_at_least_three_excursions(count: int) -> None:
    norms = flat(0.2, 200)
    for episode in range(count):
        start = 20 + 50 * episode
        norms[start : start + 7] = flat(3.0, 7)
    assert (Code.HIDDEN_OSCILLATION in codes(told({NORM: norms}))) is (count == 3)


@pytest.mark.parametrize(("share", "severity"), [(0.45, Severity.INFO), (0.55, Severity.WARN)])
def test_from_half_of_the_responses_cut_it_is_a_warning(share: float, severity: Severity) -> None:
    assert the(told({CUT: flat(share)}), Code.LENGTH_TRUNCATED).severity is severity


@pytest.mark.parametrize(("times", "severity"), [(1.8, Severity.ERROR), (2.2, Severity.CRITICAL)])
def test_far_beyond_the_limit_of_kl_the_run_is_given_up(times: float, severity: Severity) -> None:
    columns: Columns = {KL: climb(times * DEFAULT.kl_explosion, 0.5)}
    assert the(told(columns), Code.KL_EXPLOSION).severity is severity


@pytest.mark.parametrize(("zeros", "found"), [(5, False), (6, True)])
def test_most_of_the_last_points_must_lack_advantages(zeros: int, found: bool) -> None:
    highest = flat(1.0, 90) + flat(1.0, 10 - zeros) + flat(0.0, zeros)
    diagnosis = told({HIGHEST: highest, LOWEST: [-value for value in highest]})
    assert (Code.ZERO_ADVANTAGE in codes(diagnosis)) is found


@pytest.mark.parametrize(("points", "found"), [(9, False), (10, True)])
def test_times_are_compared_from_ten_points_on(points: int, found: bool) -> None:
    assert (Code.STEP_TIME_JUMP in codes(told({SECONDS: then(10.0, 40.0, points)}))) is found


@pytest.mark.parametrize(("points", "found"), [(49, False), (50, True)])
def test_memory_has_a_slope_from_fifty_points_on(points: int, found: bool) -> None:
    assert (Code.MEMORY_CREEP in codes(told({MEMORY: line(40, 45, points)}))) is found


@pytest.mark.parametrize(("validations", "found"), [(2, False), (3, True)])
def test_two_validations_are_no_trend(validations: int, found: bool) -> None:
    marks: list[float | None] = [None] * 100
    for place, value in [(49, 0.6), (99, 0.3), (9, 0.5)][:validations]:
        marks[place] = value
    diagnosis = told({SCORE: RISING, "val-core/gsm8k/acc/mean@1": marks})
    assert (Code.REWARD_HACKING in codes(diagnosis)) is found


@pytest.mark.parametrize(("kept", "found"), [(6, False), (9, True)])
def test_a_plateau_needs_half_of_its_points(kept: int, found: bool) -> None:
    """A log that keeps so many of each fifteen lines."""
    steps = [step for step in range(1, 301) if step % 15 < kept]
    diagnosis = told({SCORE: flat(0.5, len(steps))}, steps=steps)
    assert (Code.REWARD_PLATEAU in codes(diagnosis)) is found


@pytest.mark.parametrize(("rise", "stalled"), [(0.016, True), (0.024, False)])
def test_a_noisy_reward_is_stalled_if_growth_is_excluded(rise: float, stalled: bool) -> None:
    """The rise is over the 200 steps of a plateau; noise of 0.003 leaves it certain to 0.001."""
    rewards = noisy(line(0.5, 0.5 + rise * 5, 1000), 0.003)
    assert (Code.REWARD_STALLED in codes(told({SCORE: rewards}))) is stalled


@pytest.mark.parametrize(("swing", "found"), [(0.07, False), (0.1, True)])
def test_a_cycle_carries_a_good_part_of_the_variance(swing: float, found: bool) -> None:
    """Noise of 0.07: the cycle has a third of the variance, or half."""
    rewards = noisy((0.5 + swing * math.sin(2 * math.pi * step / 25) for step in range(500)), 0.07)
    assert (Code.HIDDEN_OSCILLATION in codes(told({SCORE: rewards}))) is found


@pytest.mark.parametrize("levels", [(0.2, 0.8, 0.45), (0.2, 0.8, 0.8), (0.8, 0.2, 0.5), (0.2, 0.5, 0.8)])
def test_steps_from_level_to_level_are_no_cycle(levels: tuple[float, float, float]) -> None:
    rewards = [*flat(levels[0], 40), *flat(levels[1], 60), *flat(levels[2], 60)]
    assert Code.HIDDEN_OSCILLATION not in codes(told({SCORE: rewards}))
