"""The guard of a running trial: what ends it, on both sides of each threshold, and what does not."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.health.limits import DEFAULT
from sweep.health.stopping import HEADLINES, NORMS, READ, SKIPPED_STEPS, STOP_ON, Guard

LOGGED = sorted(READ | {*HEADLINES, *NORMS})

HEALTHY = {
    "critic/score/mean": 0.5,
    "critic/score/max": 1.0,
    "actor/reward_kl_penalty": 0.1,
    "actor/grad_norm": 0.4,
    "actor/entropy": 0.5,
}


def told(rows: list[dict[str, float]], guard: Guard | None = None) -> tuple[int, str]:
    """The step at which the guard ends a run of these rows, and its reason; 0 if it lets it go on."""
    asked = guard or Guard()
    for step, row in enumerate(rows, start=1):
        reason = asked.observe(step, HEALTHY | row)
        if reason:
            return step, reason
    return 0, ""


def climbing(metric: str, first: float, last: float, steps: int) -> list[dict[str, float]]:
    return [{metric: first + (last - first) * i / (steps - 1)} for i in range(steps)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("metric", HEADLINES)
def test_a_headline_that_is_not_a_number_ends_the_trial_at_once(metric: str, value: float) -> None:
    step, reason = told([{}, {metric: 0.2}, {metric: value}, {}])
    assert step == 3
    assert reason.startswith(f"NON_FINITE at step 3: {metric}: not finite from step 3")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("norm", NORMS)
def test_skipped_updates_end_the_trial_only_if_there_are_several_in_a_row(norm: str, value: float) -> None:
    skipped, usual = {norm: value}, {norm: 0.3}
    assert told([usual, *[skipped] * (SKIPPED_STEPS - 1), usual] * 5) == (0, "")
    step, reason = told([usual, *[skipped] * SKIPPED_STEPS])
    assert step == 1 + SKIPPED_STEPS
    assert reason.startswith(f"NON_FINITE at step {step}: {norm}: not finite")


def test_the_gradient_is_still_judged_after_a_skipped_update() -> None:
    exploding = [{}, {"actor/grad_norm": math.inf}, *[{"actor/grad_norm": 1000.0}] * 100]
    assert told(exploding)[1].startswith("GRAD_EXPLOSION")


def test_other_metrics_may_be_whatever_they_are() -> None:
    assert told([{"perf/mfu/actor": math.nan, "critic/vf_explained_var": -math.inf}] * 5) == (0, "")


def test_a_healthy_run_is_never_stopped() -> None:
    draw = random.Random(1)
    rows = [
        {
            "critic/score/mean": 0.3 + 0.4 * (1 - math.exp(-i / 100)) + draw.gauss(0, 0.03),
            "actor/reward_kl_penalty": 0.25 * i / 600,
            "actor/grad_norm": draw.lognormvariate(-1, 0.5),
            "actor/entropy": 0.6 - 0.3 * i / 600,
        }
        for i in range(600)
    ]
    assert told(rows) == (0, "")


def test_kl_far_beyond_the_limit_and_climbing_ends_the_trial() -> None:
    limit = DEFAULT.kl_explosion * DEFAULT.kl_far
    step, reason = told(climbing("actor/reward_kl_penalty", 0.1, 2 * limit, 60))
    assert reason.startswith("KL_EXPLOSION at step") and "the penalty is too weak" in reason
    assert 20 < step < 60
    assert told(climbing("actor/reward_kl_penalty", 0.1, 0.98 * limit, 60)) == (0, "")


@pytest.mark.parametrize(("last", "stops"), [(0.7, True), (0.58, False)])
def test_kl_that_climbs_slowly_ends_the_trial_only_far_beyond_the_limit(last: float, stops: bool) -> None:
    """By a sixth of its level in 100 steps."""
    step, reason = told(climbing("actor/reward_kl_penalty", 0.1, last, 600))
    assert (step > 500 and reason.startswith("KL_EXPLOSION")) is stops
    assert bool(reason) is stops


@pytest.mark.parametrize("seed", range(5))
def test_kl_that_scatters_around_a_level_over_the_limit_ends_no_trial(seed: int) -> None:
    draw = random.Random(seed)
    assert told([{"actor/reward_kl_penalty": 0.31 + draw.gauss(0, 0.05)} for _ in range(550)]) == (0, "")


def test_kl_over_the_limit_ends_the_trial_only_once_the_reward_fell_below_its_start() -> None:
    over = climbing("actor/reward_kl_penalty", 0.1, 1.5 * DEFAULT.kl_explosion, 60)
    falling = [row | {"critic/score/mean": 0.5 - 0.008 * i} for i, row in enumerate(over)]
    assert told(over) == (0, "")
    assert told(falling)[1].startswith("KL_EXPLOSION")


def test_gradients_that_are_mostly_above_the_limit_end_the_trial() -> None:
    assert told([{"actor/grad_norm": 10.1}] * 9)[0] == 0  # too few to be sure
    assert told([{"actor/grad_norm": 10.1}] * 10) == (10, told([{"actor/grad_norm": 10.1}] * 10)[1])
    assert told([{"actor/grad_norm": 10.1}] * 10)[1].startswith("GRAD_EXPLOSION")
    assert told([{"actor/grad_norm": 10.0}] * 30) == (0, "")
    assert told([{}] * 20 + [{"actor/grad_norm": 50.0}] * 3 + [{}] * 20) == (0, "")


def test_an_entropy_below_its_floor_ends_the_trial_unless_the_task_is_solved() -> None:
    floor = DEFAULT.entropy_floor
    falling = [*climbing("actor/entropy", 0.5, floor / 10, 40), *[{"actor/entropy": floor / 10}] * 10]
    assert told(falling)[1].startswith("ENTROPY_COLLAPSE")
    assert told([{"actor/entropy": 1.01 * floor}] * 40) == (0, "")
    solved = [row | {"critic/score/mean": 0.99} for row in falling]
    assert told(solved) == (0, "")


DEAD = DEFAULT.all_zero_dead_points


@pytest.mark.parametrize(("zeros", "stops"), [(DEAD - 1, 0), (DEAD, DEAD)])
def test_a_reward_that_was_never_anything_but_zero_ends_the_trial(zeros: int, stops: int) -> None:
    step, reason = told([{"critic/score/mean": 0.0}] * zeros)
    assert step == stops
    assert reason.startswith("REWARD_ALL_ZERO") or not stops


def test_one_reward_that_is_not_zero_keeps_the_trial() -> None:
    assert (
        told([{"critic/score/mean": 0.0}] * 30 + [{"critic/score/mean": 0.01}] + [{"critic/score/mean": 0.0}] * 40)[
            1
        ].startswith("REWARD_ALL_ZERO")
        is False
    )


def test_a_finding_that_is_not_named_stops_nothing() -> None:
    for name in STOP_ON:
        others = tuple(n for n in STOP_ON if n != name)
        rows = {
            "NON_FINITE": [{"critic/vf_loss": math.nan}] * 3,
            "KL_EXPLOSION": climbing("actor/reward_kl_penalty", 0.1, 3.0, 60),
            "GRAD_EXPLOSION": [{"actor/grad_norm": 60.0}] * 30,
            "ENTROPY_COLLAPSE": [{"actor/entropy": 0.001}] * 40,
            "REWARD_ALL_ZERO": [{"critic/score/mean": 0.0}] * 60,
        }[name]
        assert told(rows, Guard(stop_on=(name,)))[1].startswith(name)
        assert told(rows, Guard(stop_on=others)) == (0, "")
        assert told(rows, Guard(stop_on=())) == (0, "")


def test_a_limit_that_is_changed_moves_the_threshold() -> None:
    rows = [{"actor/grad_norm": 5.0}] * 20
    assert told(rows) == (0, "")
    assert told(rows, Guard(limits=replace(DEFAULT, grad_explosion=4.0)))[1].startswith("GRAD_EXPLOSION")


def test_a_guard_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no guard stops on KL_HIGH; they know NON_FINITE, "):
        Guard(stop_on=("KL_HIGH",))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(LOGGED), st.floats(), max_size=8), min_size=1, max_size=80))
def test_whatever_is_logged_the_guard_answers(rows: list[dict[str, float]]) -> None:
    guard = Guard()
    for step, row in enumerate(rows, start=1):
        reason = guard.observe(step, row)
        assert reason == "" or reason.split(" ")[0] in STOP_ON
