"""The wider findings, each from both sides of its thresholds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence, RunFacts
from sweep.health.finding import Severity, Way
from sweep.health.findings.reward_loss import reward_loss
from sweep.health.limits import DEFAULT
from sweep.health.metric_table import Column, MetricTable

from .curves import ENTROPY, KL, NORM, SCORE, codes, line, noisy, table, the, told

RISING = line(0.2, 0.6, 300)


# Not finite.


def test_the_first_bad_step_and_the_metric_that_led_are_named() -> None:
    found = the(
        told({SCORE: [0.5] * 5, NORM: [0.3, 0.3, 0.3, math.nan, 0.3], KL: [0.1, 0.1, 0.1, 0.1, math.inf]}),
        Code.NON_FINITE,
    )
    assert (found.first_step, found.metric, found.severity) == (4, NORM, Severity.CRITICAL)
    assert "before step 4" in found.advice


def test_critic_metrics_alone_point_at_the_critic() -> None:
    found = the(told({SCORE: [0.5], NORM: [0.3], "critic/vf_loss": [math.nan]}), Code.NON_FINITE)
    assert found.scope == "critic" and keys.CRITIC_MINI_BATCH in {m.knob for m in found.direction}


def test_the_actor_leads_if_both_broke_at_the_same_step() -> None:
    found = the(told({"critic/vf_loss": [math.nan], NORM: [math.nan]}), Code.NON_FINITE)
    assert found.scope == "actor"


def test_a_skipped_update_is_a_warning_and_anything_else_not_finite_is_the_end() -> None:
    skipped = told({SCORE: RISING, NORM: [0.4] * 150 + [math.inf] + [0.4] * 149})
    assert the(skipped, Code.NON_FINITE).severity is Severity.WARN
    lost = told({SCORE: RISING, KL: [0.1] * 150 + [math.nan] + [0.1] * 149})
    assert the(lost, Code.NON_FINITE).severity is Severity.CRITICAL


def test_a_side_metric_that_is_not_finite_leaves_the_verdict_alone() -> None:
    found = told({SCORE: RISING, "training/rollout_actor_probs_pearson_corr": [math.nan] * 300})
    assert found.verdict == "OK" and Code.SIDE_METRIC_NON_FINITE in codes(found)


def test_what_is_not_finite_explains_plateau_and_vanishing_gradient() -> None:
    found = told({SCORE: [0.4] * 250, NORM: [0.0001] * 100 + [math.nan] * 150})
    assert codes(found).isdisjoint({Code.REWARD_PLATEAU, Code.GRAD_VANISHING})
    assert {f.code for f, _ in found.explained} >= {Code.REWARD_PLATEAU}


# Reward lost.


@pytest.mark.parametrize(
    ("points", "severity"),
    [
        (2, None),
        (3, Severity.WARN),
        (9, Severity.WARN),
        (10, Severity.ERROR),
        (49, Severity.ERROR),
        (50, Severity.CRITICAL),
    ],
)
def test_a_reward_of_zero_throughout_grows_graver_with_time(points: int, severity: Severity | None) -> None:
    found = [f.severity for f in told({SCORE: [0.0] * points}).findings if f.code is Code.REWARD_ALL_ZERO]
    assert found == ([severity] if severity else [])


def test_one_reward_above_zero_is_enough() -> None:
    assert Code.REWARD_ALL_ZERO not in codes(told({SCORE: [0.0] * 60 + [0.01] + [0.0] * 60}))


def test_a_reward_that_ends_under_its_start_is_critical_and_one_that_lost_its_gain_a_warning() -> None:
    under = the(told({SCORE: line(0.3, 0.5, 100) + line(0.4, 0.1, 100)}), Code.REWARD_DROP)
    gain = the(told({SCORE: line(0.3, 0.6, 200) + line(0.6, 0.32, 200)}), Code.REWARD_DROP)
    assert under.severity is Severity.CRITICAL and gain.severity is Severity.WARN
    assert under.first_step is not None and 100 < under.first_step < 180


def test_a_pulse_and_a_recovered_dip_are_no_drop() -> None:
    assert Code.REWARD_DROP not in codes(told({SCORE: line(0.3, 0.6, 200) + [0.1] * 5 + line(0.5, 0.7, 100)}))
    assert Code.REWARD_DROP not in codes(told({SCORE: [*line(0.3, 0.6, 100), 0.0]}))


@pytest.mark.parametrize(("end", "drop"), [(0.37, False), (0.34, True)])
def test_a_reward_must_lie_a_tenth_under_its_start(end: float, drop: bool) -> None:
    found = told({SCORE: [0.4] * 60 + [end] * 140})
    assert (Code.REWARD_DROP in codes(found)) is drop


def test_rewards_below_zero_follow_the_same_rule() -> None:
    assert Code.REWARD_DROP not in codes(told({SCORE: line(-5, -3, 200)}))
    assert the(told({SCORE: line(-3, -5, 200)}), Code.REWARD_DROP).severity is Severity.CRITICAL


def test_pure_noise_asked_after_every_few_steps_hardly_ever_ends_a_trial() -> None:
    draw = np.random.default_rng(0)
    lost = 0
    for _ in range(40):
        values = draw.normal(0.3, 0.05, 300)
        for i in range(1, 300):
            values[i] += 0.5 * (values[i - 1] - 0.3)
        verdicts = {
            finding.severity
            for stop in range(5, 300, 5)
            for finding in reward_loss(Evidence.of(MetricTable(np.arange(stop), {SCORE: Column(values[:stop])})))
        }
        lost += Severity.CRITICAL in verdicts
    assert lost <= 2


def test_a_reward_that_never_moves_in_any_digit_is_remarked() -> None:
    assert Code.REWARD_CONSTANT in codes(told({SCORE: [0.25] * 60}))
    assert Code.REWARD_CONSTANT not in codes(told({SCORE: [0.25] * 59 + [0.2500001]}))


# No learning signal.


def test_zero_advantages_explain_a_tiny_gradient() -> None:
    zero = {"critic/advantages/max": [0.0] * 200, "critic/advantages/min": [0.0] * 200}
    found = told({SCORE: noisy([0.9] * 200, 0.001), NORM: [1e-4] * 200, **zero})
    assert found.verdict == "ZERO_ADVANTAGE"
    assert codes(found).isdisjoint({Code.GRAD_VANISHING, Code.REWARD_PLATEAU, Code.GRAD_LOW})
    moves = {(m.way, m.knob) for f in found.findings for m in f.direction}
    assert (Way.RAISE, keys.ACTOR_LR) not in moves and (Way.LOWER, keys.KL_COEF) not in moves


def test_advantages_that_are_zero_now_and_then_are_no_finding() -> None:
    half = {"critic/advantages/max": [0.0, 2.0] * 20, "critic/advantages/min": [0.0, -2.0] * 20}
    assert Code.ZERO_ADVANTAGE not in codes(told({SCORE: line(0.2, 0.6, 40), **half}))


def test_no_spread_within_groups_says_the_same() -> None:
    assert Code.ZERO_ADVANTAGE in codes(told({"reward": line(0.2, 0.6, 40), "reward_std": [0.0] * 40}))
    assert Code.ZERO_ADVANTAGE not in codes(told({"reward": line(0.2, 0.6, 40), "reward_std": [0.1] * 40}))


def test_a_learning_rate_of_zero_is_told_unless_the_log_rounds_it() -> None:
    assert Code.LR_ZERO in codes(told({SCORE: RISING, "actor/lr": [1e-6] * 200 + [0.0] * 100}))
    assert Code.LR_ZERO not in codes(told({SCORE: RISING, "actor/lr": [0.0] + [1e-6] * 299}))
    exact = table({SCORE: RISING, "actor/lr": [0.0] * 300})
    rounded = MetricTable(exact.steps, exact.columns, frozenset({"actor/lr"}))
    assert Code.LR_ZERO not in codes(_diagnosis(rounded))


# Entropy.


@pytest.mark.parametrize(
    ("end", "severity"),
    [(0.009, Severity.CRITICAL), (0.011, Severity.WARN), (0.049, Severity.WARN), (0.051, None)],
)
def test_entropy_collapses_by_degrees(end: float, severity: Severity | None) -> None:
    found = told({SCORE: line(0.2, 0.6, 200), ENTROPY: line(0.6, 0.2, 150) + [end] * 50})
    assert [f.severity for f in found.findings if f.code is Code.ENTROPY_COLLAPSE] == ([severity] if severity else [])


def test_low_entropy_from_the_start_is_no_fall() -> None:
    assert Code.ENTROPY_COLLAPSE not in codes(told({SCORE: RISING, ENTROPY: [0.04] * 300}))


def test_collapse_at_the_best_reward_is_a_settled_policy() -> None:
    solved = told({SCORE: line(0.3, 0.99, 200), "critic/score/max": [1.0] * 200, ENTROPY: line(0.3, 0.0, 200)})
    assert the(solved, Code.ENTROPY_COLLAPSE).severity is Severity.WARN


@pytest.mark.parametrize(
    ("reward", "end", "code", "severity"),
    [
        (line(0.3, 0.6, 150) + line(0.6, 0.3, 150), 2.0, Code.ENTROPY_EXPLOSION, Severity.ERROR),
        (RISING, 2.0, Code.ENTROPY_EXPLOSION, Severity.WARN),
        (RISING, 0.95, Code.ENTROPY_RISING, Severity.INFO),
    ],
)
def test_rising_entropy_is_judged_by_its_height_and_by_the_reward(
    reward: list[float], end: float, code: Code, severity: Severity
) -> None:
    assert the(told({SCORE: reward, ENTROPY: line(0.4, end, 300)}), code).severity is severity


def test_entropy_above_one_from_the_start_is_a_base_model() -> None:
    assert codes(told({SCORE: RISING, ENTROPY: noisy(line(2.1, 2.0, 300), 0.02)})) <= {Code.SHORT_RUN}


def test_the_entropy_coefficient_is_blamed_if_it_is_on() -> None:
    on = RunFacts(config={keys.ENTROPY_COEFF: "0.001"})
    assert "entropy_coeff is 0.001" in the(told({ENTROPY: line(0.4, 3, 300)}, on), Code.ENTROPY_EXPLOSION).advice


def test_entropy_per_sequence_has_no_absolute_threshold() -> None:
    assert codes(told({"reward": RISING, "objective/entropy": line(0.5, 40, 300)})) <= {Code.SHORT_RUN}


# Lengths.


@pytest.mark.parametrize(
    ("share", "code", "severity"),
    [
        (0.09, None, None),
        (0.11, Code.LENGTH_TRUNCATED, Severity.INFO),
        (0.51, Code.LENGTH_TRUNCATED, Severity.WARN),
        (0.91, Code.LENGTH_SATURATED, Severity.ERROR),
    ],
)
def test_cut_responses_grow_graver_with_their_share(share: float, code: Code | None, severity: Severity | None) -> None:
    found = told({SCORE: RISING, "response_length/clip_ratio": [share] * 300})
    assert [(f.code, f.severity) for f in found.findings if "LENGTH" in f.code.name] == (
        [(code, severity)] if code else []
    )


def test_a_ratio_against_a_longest_response_that_varies_is_no_cutting() -> None:
    varying = {"response_length/clip_ratio": [0.95] * 300, "response_length/max": noisy([100.0] * 300, 20)}
    assert not any("LENGTH" in c.name for c in codes(told({SCORE: RISING, **varying})))
    fixed = {"response_length/clip_ratio": [0.95] * 300, "response_length/max": [256.0] * 300}
    assert Code.LENGTH_SATURATED in codes(told({SCORE: RISING, **fixed}))


def test_a_configured_maximum_decides_whether_the_longest_is_cut() -> None:
    logged = {SCORE: RISING, "response_length/clip_ratio": [0.95] * 300, "response_length/max": [256.0] * 300}
    assert Code.LENGTH_SATURATED not in codes(told(logged, RunFacts(config={keys.RESPONSE_LENGTH: 512})))
    assert Code.LENGTH_SATURATED in codes(told(logged, RunFacts(config={keys.RESPONSE_LENGTH: 256})))


@pytest.mark.parametrize(
    ("mean", "code"), [(229.0, None), (232.0, Code.LENGTH_NEAR_LIMIT), (250.0, Code.LENGTH_SATURATED)]
)
def test_without_a_ratio_the_mean_against_the_longest_tells(mean: float, code: Code | None) -> None:
    found = told({SCORE: RISING, "response_length/mean": [mean] * 300, "response_length/max": [256.0] * 300})
    assert [f.code for f in found.findings if "LENGTH" in f.code.name] == ([code] if code else [])


@pytest.mark.parametrize(("end", "collapsed"), [(39.0, True), (45.0, False)])
def test_lengths_collapse_below_a_fifth_of_their_start(end: float, collapsed: bool) -> None:
    found = told({SCORE: [0.3, 0.31] * 150, "response_length/mean": [200.0] * 200 + [end] * 100})
    assert (Code.LENGTH_COLLAPSE in codes(found)) is collapsed


# Critic.


@pytest.mark.parametrize(("points", "found"), [(49, False), (50, True)])
def test_a_critic_loss_above_a_tenth_must_last(points: int, found: bool) -> None:
    loss = [0.05] * (300 - points) + [0.11] * points
    assert (Code.CRITIC_LOSS_HIGH in codes(told({SCORE: RISING, "critic/vf_loss": loss}))) is found


@pytest.mark.parametrize(("level", "found"), [(0.099, False), (0.101, True)])
def test_a_critic_loss_is_high_above_a_tenth(level: float, found: bool) -> None:
    assert (Code.CRITIC_LOSS_HIGH in codes(told({SCORE: RISING, "critic/vf_loss": [level] * 300}))) is found


def test_a_critic_that_starts_badly_and_learns_is_no_finding() -> None:
    learns = {"critic/vf_loss": line(15, 0.01, 300), "critic/vf_explained_var": line(-70, 0.5, 300)}
    assert codes(told({SCORE: RISING, "critic/grad_norm": line(1000, 2, 300), **learns})) <= {Code.SHORT_RUN}


@pytest.mark.parametrize(("level", "found"), [(-0.01, True), (0.01, False)])
def test_a_critic_worse_than_a_constant_for_long_is_told(level: float, found: bool) -> None:
    assert (
        Code.CRITIC_UNINFORMATIVE
        in codes(told({SCORE: RISING, "critic/vf_explained_var": [level] * 60 + [level] * 240}))
    ) is found


def test_a_critic_diverges_if_norm_and_loss_grow_together() -> None:
    grows = {"critic/grad_norm": line(1, 40, 100), "critic/vf_loss": line(0.02, 0.09, 100)}
    assert Code.CRITIC_DIVERGING in codes(told({SCORE: line(0.2, 0.5, 100), **grows}))
    calm = {**grows, "critic/vf_loss": line(0.09, 0.02, 100)}
    assert Code.CRITIC_DIVERGING not in codes(told({SCORE: line(0.2, 0.5, 100), **calm}))


@pytest.mark.parametrize(("end", "diverges"), [(0.35, False), (0.6, True)])
def test_a_critic_diverges_if_its_loss_alone_grows_tenfold(end: float, diverges: bool) -> None:
    loss = {"critic/vf_loss": [0.04] * 50 + line(0.04, end, 20) + [end] * 30}
    assert (Code.CRITIC_DIVERGING in codes(told({SCORE: line(0.2, 0.5, 100), **loss}))) is diverges


@pytest.mark.parametrize(("mean", "found"), [(0.012, False), (0.099, False), (-0.101, True)])
def test_advantages_off_zero_are_told(mean: float, found: bool) -> None:
    assert (Code.ADVANTAGE_OFFSET in codes(told({SCORE: RISING, "critic/advantages/mean": [mean] * 300}))) is found


# Reward hacking.


def _validated(last: float) -> list[float | None]:
    curve = line(0.4, 0.6, 150) + line(0.6, last, 150)
    return [value if step % 50 == 0 else None for step, value in enumerate(curve)]


@pytest.mark.parametrize(("last", "hacked"), [(0.6, False), (0.55, False), (0.4, True)])
def test_validation_that_falls_while_the_reward_rises_is_hacking(last: float, hacked: bool) -> None:
    found = told({SCORE: noisy(line(0.2, 0.8, 300), 0.01), "val-core/x/acc/mean@1": _validated(last)})
    assert (Code.REWARD_HACKING in codes(found)) is hacked


def test_validation_that_falls_with_the_reward_is_no_hacking() -> None:
    found = told({SCORE: line(0.8, 0.2, 300), "val-core/x/acc/mean@1": _validated(0.2)})
    assert Code.REWARD_HACKING not in codes(found)


def test_without_validation_shrinking_responses_are_a_sign_with_little_confidence() -> None:
    found = the(told({SCORE: line(0.3, 0.9, 200), "response_length/mean": line(300, 20, 200)}), Code.REWARD_HACKING)
    assert found.confidence.value == "low" and found.severity is Severity.WARN


# Oscillation.


def test_pulses_that_smoothing_hides_are_found() -> None:
    norm = [3.0 if step % 15 == 0 else 0.3 for step in range(300)]
    assert Code.HIDDEN_OSCILLATION in codes(told({SCORE: RISING, NORM: norm}))
    calm = [0.9 if step % 15 == 0 else 0.3 for step in range(300)]
    assert Code.HIDDEN_OSCILLATION not in codes(told({SCORE: RISING, NORM: calm}))


def test_two_pulses_are_no_oscillation() -> None:
    norm = [3.0 if step in (100, 200) else 0.3 for step in range(300)]
    assert Code.HIDDEN_OSCILLATION not in codes(told({SCORE: RISING, NORM: norm}))


def test_a_cycle_in_the_reward_is_found_with_its_period() -> None:
    wave = [0.4 + 0.05 * math.sin(2 * math.pi * step / 25) + 0.0005 * step for step in range(400)]
    found = the(told({SCORE: noisy(wave, 0.01)}), Code.HIDDEN_OSCILLATION)
    assert dict(found.figures)["period_points"] == pytest.approx(25, rel=0.05)


def test_noise_has_no_cycle() -> None:
    hits = sum(Code.HIDDEN_OSCILLATION in codes(told({SCORE: noisy(RISING, 0.03, seed)})) for seed in range(30))
    assert hits <= 1


# Steps, memory, updates.


@pytest.mark.parametrize(("slow", "found"), [(19.0, False), (21.0, True)])
def test_steps_twice_as_slow_as_before_are_told(slow: float, found: bool) -> None:
    assert (Code.STEP_TIME_JUMP in codes(told({SCORE: RISING, "timing_s/step": [10.0] * 250 + [slow] * 50}))) is found


def test_a_slow_first_step_is_warm_up() -> None:
    assert Code.STEP_TIME_JUMP not in codes(told({SCORE: line(0.2, 0.4, 18), "timing_s/step": [35.0] + [8.0] * 17}))


def test_slower_steps_with_longer_responses_are_blamed_on_the_responses() -> None:
    longer = {"timing_s/step": [10.0] * 250 + [40.0] * 50, "response_length/mean": [100.0] * 250 + [400.0] * 50}
    assert "responses grew" in the(told({SCORE: RISING, **longer}), Code.STEP_TIME_JUMP).seen


MEMORY = "actor/perf/max_memory_reserved_gb"


def test_memory_that_creeps_is_projected_to_guard_and_limit() -> None:
    found = the(told({MEMORY: line(45, 48, 301)}, RunFacts(gpu_total_gib=56)), Code.MEMORY_CREEP)
    figures = dict(found.figures)
    assert figures["slope_gb_per_100_steps"] == pytest.approx(1.0)
    assert figures["steps_to_guard"] == pytest.approx(300) and figures["steps_to_limit"] == pytest.approx(800)
    assert found.severity is Severity.WARN


@pytest.mark.parametrize(("total", "severity"), [(53.9, Severity.ERROR), (54.1, Severity.WARN)])
def test_a_guard_within_a_hundred_steps_calls_for_action(total: float, severity: Severity) -> None:
    assert the(told({MEMORY: line(45, 48, 301)}, RunFacts(gpu_total_gib=total)), Code.MEMORY_CREEP).severity is severity


def test_the_save_interval_replaces_the_hundred_steps() -> None:
    facts = RunFacts(gpu_total_gib=56, save_interval_steps=400)
    assert the(told({MEMORY: line(45, 48, 301)}, facts), Code.MEMORY_CREEP).severity is Severity.ERROR


def test_one_step_up_and_a_flat_line_is_no_creep() -> None:
    assert Code.MEMORY_CREEP not in codes(told({MEMORY: [40.0] * 100 + [45.0] * 200}))
    assert Code.MEMORY_CREEP not in codes(told({MEMORY: line(40, 45, 60) + [45.0] * 240}))


@pytest.mark.parametrize(("slope", "creeps"), [(0.09, False), (0.11, True)])
def test_a_slope_that_fills_nothing_in_a_thousand_steps_is_no_creep(slope: float, creeps: bool) -> None:
    assert (Code.MEMORY_CREEP in codes(told({MEMORY: line(40, 40 + 3 * slope, 301)}))) is creeps


def test_host_memory_is_judged_apart() -> None:
    both = {MEMORY: [40.0] * 300, "perf/cpu_memory_used_gb": noisy(line(120, 160, 300), 0.5)}
    found = told(both, RunFacts(gpu_total_gib=80, host_total_gib=200))
    assert the(found, Code.MEMORY_CREEP).metric == "perf/cpu_memory_used_gb"


@pytest.mark.parametrize(("level", "found"), [(0.029, False), (0.031, True)])
def test_updates_that_move_the_policy_far_are_told(level: float, found: bool) -> None:
    assert (
        Code.UPDATE_TOO_LARGE in codes(told({SCORE: RISING, KL: [0.1] * 300, "actor/ppo_kl": [level] * 300}))
    ) is found


def test_kl_within_an_update_may_creep_but_not_jump() -> None:
    jump = told({SCORE: line(0.2, 0.4, 42), KL: [0.1] * 42, "actor/ppo_kl": [0.0001] * 40 + [0.0035] * 2})
    creep = told({SCORE: line(0.2, 0.4, 42), KL: [0.1] * 42, "actor/ppo_kl": line(0.0002, 0.0008, 42)})
    assert the(jump, Code.UPDATE_TOO_LARGE).severity is Severity.INFO
    assert all(m.knob != keys.KL_COEF for m in the(jump, Code.UPDATE_TOO_LARGE).direction)
    assert Code.UPDATE_TOO_LARGE not in codes(creep)


@pytest.mark.parametrize(
    ("gap", "correlation", "found"), [(0.008, 0.999, False), (0.06, 0.999, True), (0.008, 0.9, True)]
)
def test_a_rollout_that_disagrees_with_the_trainer_is_told(gap: float, correlation: float, found: bool) -> None:
    logged = {
        "training/rollout_probs_diff_mean": [gap] * 300,
        "training/rollout_actor_probs_pearson_corr": [correlation] * 300,
    }
    assert (Code.ROLLOUT_MISMATCH in codes(told({SCORE: RISING, **logged}))) is found


@pytest.mark.parametrize(("steps", "short"), [(499, True), (500, False)])
def test_a_run_shorter_than_the_window_is_remarked(steps: int, short: bool) -> None:
    found = told({SCORE: line(0.2, 0.6, steps)})
    assert (Code.SHORT_RUN in codes(found)) is short and found.verdict == "OK"


def test_a_guard_limit_can_be_replaced() -> None:
    far = replace(DEFAULT, guard_free_gib=1.0)
    found = the(told({MEMORY: line(45, 48, 301)}, RunFacts(gpu_total_gib=56), far), Code.MEMORY_CREEP)
    assert dict(found.figures)["steps_to_guard"] == pytest.approx(700)


def _diagnosis(logged: MetricTable):  # type: ignore[no-untyped-def]
    from sweep.health.diagnosis import diagnose

    return diagnose(logged)
