"""The three metrics of the screen: each threshold from both sides, and the article's own words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import RunFacts
from sweep.health.finding import Severity, Way
from sweep.health.limits import DEFAULT
from sweep.health.metric_table import MetricTable
from sweep.health.screen import screen

from .curves import KL, NORM, SCORE, codes, line, noisy, table, the, told


def test_a_healthy_run_gives_no_finding() -> None:
    healthy = {SCORE: noisy(line(0.2, 0.6, 500), 0.02), KL: noisy(line(0.06, 0.12, 500), 0.005), NORM: [0.4] * 500}
    assert screen(table(healthy)) == ()


def test_an_empty_table_gives_no_finding() -> None:
    assert screen(MetricTable.from_rows([])) == ()


# Plateau: 200 steps in a row, fluctuation under 0.01, no growth.


@pytest.mark.parametrize(("steps", "code"), [(199, Code.INSUFFICIENT_DATA), (200, Code.REWARD_PLATEAU)])
def test_a_plateau_takes_two_hundred_steps(steps: int, code: Code) -> None:
    found = screen(table({SCORE: noisy([0.4] * steps, 0.001), KL: [0.1] * steps}))
    assert [f.code for f in found] == [code]
    assert found[0].severity is Severity.WARN


@pytest.mark.parametrize(("high", "plateau"), [(0.4099, True), (0.4101, False)])
def test_a_plateau_fluctuates_by_less_than_a_hundredth(high: float, plateau: bool) -> None:
    found = screen(table({SCORE: [0.4, high] * 120}))
    assert (Code.REWARD_PLATEAU in {f.code for f in found}) is plateau


@pytest.mark.parametrize(("growth", "plateau"), [(0.0049, True), (0.0051, False)])
def test_a_slow_steady_climb_within_the_fluctuation_is_no_plateau(growth: float, plateau: bool) -> None:
    climb = [0.4 + growth * step / 200 for step in range(240)]
    assert (Code.REWARD_PLATEAU in {f.code for f in screen(table({SCORE: climb}))}) is plateau


def test_a_falling_reward_within_the_fluctuation_is_a_plateau() -> None:
    assert [f.code for f in screen(table({SCORE: line(0.409, 0.4, 220), KL: [0.1] * 220}))] == [Code.REWARD_PLATEAU]


def test_a_plateau_is_counted_in_steps_when_only_every_tenth_is_logged() -> None:
    found = screen(table({SCORE: noisy([0.4] * 21, 0.001)}, steps=range(10, 220, 10)))
    assert [f.code for f in found] == [Code.REWARD_PLATEAU]
    short = screen(table({SCORE: noisy([0.4] * 15, 0.001)}, steps=range(10, 160, 10)))
    assert [f.code for f in short] == [Code.INSUFFICIENT_DATA]


def test_a_plateau_survives_lost_lines_but_not_the_loss_of_most() -> None:
    steps = list(range(1, 241))
    flat = dict(zip(steps, noisy([0.4] * 240, 0.001), strict=True))
    thin = {s: v for s, v in flat.items() if s % 3}
    assert [f.code for f in screen(table({SCORE: list(thin.values())}, thin))] == [Code.REWARD_PLATEAU]
    rare = {s: v for s, v in flat.items() if s <= 3 or s > 210}
    assert Code.REWARD_PLATEAU not in {f.code for f in screen(table({SCORE: list(rare.values())}, rare))}


def test_a_reward_that_rose_and_went_flat_lately_is_not_accused_yet() -> None:
    assert screen(table({SCORE: line(0.2, 0.6, 300) + [0.6] * 150})) == ()


def test_a_plateau_says_since_when_and_where_to_turn() -> None:
    found = told({SCORE: line(0.2, 0.4, 250) + noisy([0.4] * 250, 0.001), KL: [0.1] * 500})
    plateau = the(found, Code.REWARD_PLATEAU)
    assert plateau.first_step in range(235, 262) and plateau.last_step == 500
    assert "step 2" in plateau.advice


@pytest.mark.parametrize(("kl", "way"), [(0.19, Way.RAISE), (0.03, Way.LOWER), (0.1, Way.CHECK)])
def test_the_way_out_of_a_plateau_depends_on_where_kl_is(kl: float, way: Way) -> None:
    found = told({SCORE: noisy([0.4] * 220, 0.001), KL: [kl] * 220})
    assert the(found, Code.REWARD_PLATEAU).direction[0].way is way


def test_a_noisy_reward_that_does_not_grow_is_stalled_and_a_growing_one_is_not() -> None:
    assert Code.REWARD_STALLED in codes(told({SCORE: noisy([0.4] * 500, 0.03)}))
    assert codes(told({SCORE: noisy(line(0.4, 0.5, 500), 0.03)})) == set()


def test_a_flat_reward_at_the_ceiling_is_success() -> None:
    found = told({SCORE: noisy([0.97] * 250, 0.001), "critic/score/max": [1.0] * 250})
    assert found.verdict == "OK"
    assert the(found, Code.REWARD_SATURATED).severity is Severity.INFO
    below = told({SCORE: noisy([0.94] * 250, 0.001), "critic/score/max": [1.0] * 250})
    assert below.verdict == "REWARD_PLATEAU"


def test_too_few_points_say_nothing_about_growth() -> None:
    assert screen(table({SCORE: [0.4] * 9})) == ()
    assert [f.code for f in screen(table({SCORE: [0.4] * 10}))] == [Code.INSUFFICIENT_DATA]


# KL to the reference: band 0.05 to 0.15, over 0.3 and climbing.


@pytest.mark.parametrize(("end", "code"), [(0.29, Code.KL_HIGH), (0.32, Code.KL_EXPLOSION)])
def test_kl_explodes_above_three_tenths_while_climbing(end: float, code: Code) -> None:
    found = screen(table({SCORE: line(0.2, 0.6, 200), KL: line(0.1, end, 200)}))
    assert code in {f.code for f in found} and (code is Code.KL_EXPLOSION) == ("KL_EXPLOSION" in str(found))


@pytest.mark.parametrize("spread", [0.0, 0.005, 0.02])
def test_a_slow_climb_over_the_limit_is_an_explosion_as_well(spread: float) -> None:
    """By 0.22 in 500 steps: 14 % of its level in the last 100."""
    found = told({SCORE: line(0.2, 0.6, 500), KL: noisy(line(0.1, 0.33, 500), spread)})
    assert the(found, Code.KL_EXPLOSION).severity is Severity.ERROR


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("spread", [0.005, 0.03, 0.1])
def test_a_noisy_level_over_the_limit_is_no_climb(spread: float, seed: int) -> None:
    found = told({SCORE: line(0.2, 0.6, 500), KL: noisy([0.31] * 500, spread, seed)})
    assert Code.KL_EXPLOSION not in codes(found)


@pytest.mark.parametrize("seed", range(40))
def test_a_climb_that_has_come_to_rest_is_no_climb(seed: int) -> None:
    curve = line(0.1, 0.31, 300) + [0.31] * 200
    assert Code.KL_EXPLOSION not in codes(told({SCORE: line(0.2, 0.6, 500), KL: noisy(curve, 0.02, seed)}))


def test_a_slow_climb_below_the_limit_is_no_explosion_even_with_the_reward_lost() -> None:
    found = told({SCORE: line(0.5, 0.3, 500), KL: line(0.12, 0.2, 500)})
    assert Code.KL_EXPLOSION not in codes(found)


def test_high_kl_that_does_not_climb_is_high_and_no_explosion() -> None:
    found = screen(table({SCORE: line(0.2, 0.6, 300), KL: noisy([0.35] * 300, 0.005)}))
    assert [f.code for f in found] == [Code.KL_HIGH]


@pytest.mark.parametrize(
    ("level", "severity"), [(0.149, None), (0.151, Severity.INFO), (0.179, Severity.INFO), (0.181, Severity.WARN)]
)
def test_kl_above_the_band_is_told_and_above_the_action_limit_acted_on(level: float, severity: Severity | None) -> None:
    found = [f for f in screen(table({SCORE: line(0.2, 0.6, 300), KL: [level] * 300})) if f.code is Code.KL_HIGH]
    assert [f.severity for f in found] == ([] if severity is None else [severity])
    assert all((m.way, m.knob) != (Way.LOWER, keys.KL_COEF) for f in found for m in f.direction)


@pytest.mark.parametrize(("level", "low"), [(0.039, True), (0.041, False)])
def test_low_kl_is_told_below_four_hundredths(level: float, low: bool) -> None:
    found = screen(table({SCORE: line(0.2, 0.6, 100), KL: [level] * 100}))
    assert (Code.KL_TOO_LOW in {f.code for f in found}) is low


@pytest.mark.parametrize(("steps", "low"), [(99, False), (100, True)])
def test_low_kl_at_the_start_of_a_run_means_nothing(steps: int, low: bool) -> None:
    found = screen(table({SCORE: line(0.2, 0.6, steps), KL: [0.001] * steps}))
    assert (Code.KL_TOO_LOW in {f.code for f in found}) is low


def test_low_kl_matters_only_where_the_reward_does_not_rise() -> None:
    rising = told({SCORE: line(0.2, 0.6, 300), KL: [0.01] * 300})
    stuck = told({SCORE: noisy([0.4] * 300, 0.002), KL: [0.01] * 300})
    assert the(rising, Code.KL_TOO_LOW).severity is Severity.INFO and not the(rising, Code.KL_TOO_LOW).direction
    assert the(stuck, Code.KL_TOO_LOW).severity is Severity.WARN


@pytest.mark.parametrize(("end", "explodes"), [(9.0, False), (14.0, True)])
def test_kl_per_sequence_has_its_own_limit(end: float, explodes: bool) -> None:
    found = screen(table({"reward": line(1.0, 2.0, 100), "objective/kl": line(0.1, end, 100)}))
    assert (Code.KL_EXPLOSION in {f.code for f in found}) is explodes


def test_kl_that_climbs_while_the_reward_falls_below_its_start_explodes_earlier() -> None:
    rising = told({SCORE: line(0.5, 0.6, 150), KL: line(0.05, 0.25, 150)})
    falling = told({SCORE: line(0.5, 0.1, 150), KL: line(0.05, 0.25, 150)})
    assert Code.KL_EXPLOSION not in codes(rising)
    assert the(falling, Code.KL_EXPLOSION).severity is Severity.CRITICAL
    assert the(falling, Code.KL_EXPLOSION).direction[0].way is Way.RAISE


@pytest.mark.parametrize(("level", "negative"), [(-0.019, False), (-0.021, True)])
def test_kl_that_stays_clearly_negative_is_an_error(level: float, negative: bool) -> None:
    assert (Code.KL_NEGATIVE in codes(told({KL: [level] * 30}))) is negative


def test_kl_that_crosses_zero_is_sampling_noise() -> None:
    assert Code.KL_NEGATIVE not in codes(told({KL: [-0.1, 0.01] * 20}))


def test_kl_is_not_measured_only_where_the_log_shows_that_it_could_have_been() -> None:
    off = RunFacts(config={keys.KL_IN_REWARD: "False", keys.KL_LOSS: False})
    assert Code.KL_NOT_MEASURED not in codes(told({SCORE: line(0.2, 0.6, 50)}))
    assert Code.KL_NOT_MEASURED in codes(told({SCORE: line(0.2, 0.6, 50)}, off))
    update_only = told({SCORE: line(0.2, 0.6, 50), "actor/ppo_kl": [0.0] * 50})
    assert update_only.verdict == "KL_NOT_MEASURED" and update_only.severity is Severity.INFO
    on = RunFacts(config={keys.KL_IN_REWARD: True, keys.KL_LOSS: False})
    assert Code.KL_NOT_MEASURED not in codes(told({SCORE: line(0.2, 0.6, 50), KL: [0.1] * 50}, on))


def test_zero_kl_within_an_update_is_explained_by_one_update_a_batch_only_if_the_sizes_say_so() -> None:
    one = RunFacts(config={keys.TRAIN_BATCH: 128, keys.MINI_BATCH: 128})
    logged = {SCORE: line(0.2, 0.6, 50), "actor/ppo_kl": [0.0] * 50}
    assert "by construction" in the(told(logged, one), Code.KL_NOT_MEASURED).seen
    assert "by construction" not in the(told(logged), Code.KL_NOT_MEASURED).seen


# Gradient norm: 0.01 to 1, under 0.001 for long, often over 10.


@pytest.mark.parametrize(("points", "vanishes"), [(49, False), (50, True)])
def test_a_gradient_vanishes_only_if_it_stays_small_for_long(points: int, vanishes: bool) -> None:
    found = told({SCORE: line(0.2, 0.6, 100), NORM: [0.1] * (100 - points) + [0.0009] * points})
    assert (Code.GRAD_VANISHING in codes(found)) is vanishes


@pytest.mark.parametrize(("every", "vanishes"), [(40, True), (11, True), (9, False), (5, False)])
def test_single_steps_above_it_do_not_end_a_vanished_gradient(every: int, vanishes: bool) -> None:
    found = told({SCORE: line(0.2, 0.6, 500), NORM: [0.1 if i % every == 3 else 0.0009 for i in range(500)]})
    assert (Code.GRAD_VANISHING in codes(found)) is vanishes


@pytest.mark.parametrize(("healthy", "vanishes"), [(1, True), (5, True), (6, False), (50, False)])
def test_a_gradient_that_came_back_has_not_vanished(healthy: int, vanishes: bool) -> None:
    found = told({SCORE: line(0.2, 0.6, 500), NORM: [0.0005] * (500 - healthy) + [0.1] * healthy})
    assert (Code.GRAD_VANISHING in codes(found)) is vanishes


def test_the_finding_counts_from_where_the_gradient_vanished() -> None:
    curve = [0.1] * 100 + [0.1 if i % 40 == 3 else 0.0009 for i in range(400)]
    found = the(told({SCORE: line(0.2, 0.6, 500), NORM: curve}), Code.GRAD_VANISHING)
    assert found.first_step is not None and 60 <= found.first_step <= 101 and found.last_step == 500


@pytest.mark.parametrize(("norm", "vanishes"), [(0.00099, True), (0.00101, False)])
def test_a_gradient_vanishes_under_a_thousandth(norm: float, vanishes: bool) -> None:
    assert (Code.GRAD_VANISHING in codes(told({NORM: [norm] * 100}))) is vanishes


@pytest.mark.parametrize(
    ("norm", "code"),
    [(0.0099, Code.GRAD_LOW), (0.0101, None), (0.99, None), (1.01, Code.GRAD_ELEVATED), (9.9, Code.GRAD_ELEVATED)],
)
def test_between_the_limits_a_gradient_off_its_band_is_a_remark(norm: float, code: Code | None) -> None:
    found = screen(table({NORM: [norm] * 20}))
    assert [f.code for f in found] == ([code] if code else [])
    assert all(f.severity is Severity.INFO for f in found)


@pytest.mark.parametrize(("high", "code"), [(9.9, None), (10.1, Code.GRAD_SPIKE)])
def test_one_value_above_ten_is_a_spike(high: float, code: Code | None) -> None:
    found = {f.code for f in screen(table({NORM: [0.5] * 50 + [high] + [0.5] * 50}))}
    assert found == ({code} if code else set())


@pytest.mark.parametrize(("share", "code"), [(0.09, Code.GRAD_SPIKE), (0.11, Code.GRAD_EXPLOSION)])
def test_often_above_ten_is_an_explosion(share: float, code: Code) -> None:
    over = round(200 * share)
    found = {f.code for f in screen(table({NORM: [0.5] * (200 - over) + [20.0] * over}))}
    assert code in found and len(found & {Code.GRAD_SPIKE, Code.GRAD_EXPLOSION}) == 1


def test_an_excursion_that_came_back_is_a_spike_even_if_it_was_long() -> None:
    found = {f.code for f in screen(table({NORM: [0.5] * 100 + [20.0] * 30 + [0.5] * 70}))}
    assert Code.GRAD_EXPLOSION not in found and Code.GRAD_SPIKE in found


def test_an_explosion_of_most_of_the_window_ends_a_trial() -> None:
    assert the(told({NORM: line(0.5, 50, 100)}), Code.GRAD_EXPLOSION).severity is Severity.CRITICAL
    assert the(told({NORM: [0.5, 12.0, 40.0]}), Code.GRAD_EXPLOSION).severity is Severity.ERROR


def test_the_critic_norm_never_counts_as_the_actor_norm() -> None:
    assert screen(table({"critic/grad_norm": [1000.0] * 100})) == ()


# Limits and window.


def test_a_limit_can_be_replaced_by_argument() -> None:
    shorter = replace(DEFAULT, plateau_steps=50)
    assert Code.REWARD_PLATEAU in {f.code for f in screen(table({SCORE: noisy([0.4] * 60, 0.001)}), None, shorter)}


def test_what_lies_before_the_window_is_not_screened() -> None:
    old = {NORM: [50.0] * 100 + [0.5] * 500, KL: [2.0] * 100 + [0.1] * 500, SCORE: line(0.2, 0.6, 600)}
    assert screen(table(old)) == ()


def test_a_kl_spike_that_came_back_is_a_warning_of_its_own() -> None:
    spiked = told({SCORE: line(0.2, 0.6, 300), KL: [0.1] * 150 + [40.0] * 3 + [0.1] * 147})
    assert spiked.verdict == "KL_SPIKE" and the(spiked, Code.KL_SPIKE).first_step == 151
    assert Code.KL_SPIKE not in codes(told({SCORE: line(0.2, 0.6, 300), KL: [0.1] * 150 + [0.29] + [0.1] * 149}))


def test_without_a_configuration_missing_kl_makes_no_verdict_unless_the_updates_show_it() -> None:
    moving = told({SCORE: line(0.2, 0.6, 50), "actor/ppo_kl": [0.0005] * 50})
    assert moving.verdict == "OK" and Code.KL_NOT_MEASURED in codes(moving)


@pytest.mark.parametrize(("level", "severity"), [(0.25, Severity.WARN), (0.02, Severity.INFO)])
def test_a_controller_at_its_bound_is_told_while_it_is_there(level: float, severity: Severity) -> None:
    bound = "sweep/kl_coef_at_bound"
    held = told({KL: [level] * 120, bound: [0.0] * 100 + [1.0] * 20})
    found = the(held, Code.KL_COEF_AT_BOUND)
    assert (found.first_step, found.last_step, found.severity) == (101, 120, severity)
    assert Code.KL_COEF_AT_BOUND not in codes(told({KL: [level] * 120, bound: [1.0] * 119 + [0.0]}))
    assert Code.KL_COEF_AT_BOUND not in codes(told({KL: [level] * 120}))
