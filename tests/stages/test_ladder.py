"""Ladders: climbing, ties to the cheaper rung, constraints, and lr before lam, never both at once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.core.decision import Halt
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.stage import Constraint, Knob, Ladder, LadderRule, Rollback, Rung, Stage, StageBudget
from tests.stages.histories import died, line, play

SHIPPED = to_plan(compose(["model=tiny"]))
BUDGETS = ((2048, 64), (4096, 128), (8192, 256), (16384, 512), (32768, 1024))


def rung(tokens: int, seqs: int) -> Rung:
    return Rung(f"{tokens}/{seqs}", Overrides.of({keys.MAX_BATCHED_TOKENS: tokens, keys.MAX_SEQS: seqs}))


def token_stage(
    *,
    trials: int = 10,
    constraints: tuple[Constraint, ...] = (),
    margin: float = 0.02,
    rollback: Rollback | None = None,
) -> Stage:
    return Stage(
        name="token_budget",
        knobs=(Knob(keys.MAX_BATCHED_TOKENS, 64, 1e6), Knob(keys.MAX_SEQS, 1, 65536)),
        rule=LadderRule((Ladder("token_budget", tuple(rung(*b) for b in BUDGETS)),), margin, rollback),
        objective="rollout_throughput",
        budget=StageBudget(trials=trials, steps=40, warmup_steps=2),
        constraints=constraints,
    )


BASE = Overrides.of({keys.MAX_BATCHED_TOKENS: 8192, keys.MAX_SEQS: 256})


def rates(by_tokens: dict[int, float], **series: float):
    def answer(proposal, overrides):
        rate = by_tokens[overrides.get(keys.MAX_BATCHED_TOKENS)]
        return line(0.1, 1.0, **{"sweep/rollout_tokens_per_s": rate, **series})

    return answer


def test_climbing_goes_up_while_throughput_rises_and_stops_when_it_does_not():
    played = play(token_stage(), BASE, rates({8192: 100, 16384: 120, 32768: 110}))
    assert played.tried(keys.MAX_BATCHED_TOKENS) == [16384, 32768]
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 16384
    assert played.choice.settings.get(keys.MAX_SEQS) == 512


def test_bigger_is_not_better_the_ladder_goes_down_when_up_does_not_help():
    played = play(token_stage(), BASE, rates({8192: 100, 16384: 60, 4096: 130, 2048: 90}))
    assert played.tried(keys.MAX_BATCHED_TOKENS) == [16384, 4096, 2048]
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 4096


@pytest.mark.parametrize(("gain", "wins"), [(1.019, None), (1.021, 16384)])
def test_within_the_margin_the_smaller_budget_wins(gain: float, wins: int | None):
    played = play(token_stage(), BASE, rates({8192: 100, 16384: 100 * gain, 32768: 90, 4096: 50}))
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == wins


@pytest.mark.parametrize(("free", "wins"), [(4.9, None), (5.0, 16384)])
def test_a_rung_that_leaves_too_little_free_memory_cannot_win(free: float, wins: int | None):
    def answer(proposal, overrides):
        tokens = overrides.get(keys.MAX_BATCHED_TOKENS)
        rate = {8192: 100, 16384: 150, 32768: 10, 4096: 90}[tokens]
        spare = free if tokens == 16384 else 20.0
        return line(0.1, 1.0, **{"sweep/rollout_tokens_per_s": rate, "sweep/free_gib_min": spare})

    floor = Constraint("free_gib", "min", low=5.0)
    played = play(token_stage(constraints=(floor,)), BASE, answer)
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == wins


PREEMPTIONS = next(c for c in SHIPPED.stage("token_budget").constraints if c.series == "preemptions")


def preempting(counts: dict[int, float], seconds: dict[int, float] | None = None):
    """Throughput rises with the budget; a step preempts so many requests."""

    def answer(proposal, overrides):
        tokens = overrides.get(keys.MAX_BATCHED_TOKENS)
        metrics = {"sweep/rollout_tokens_per_s": 10.0 * math.log(tokens), "sweep/preemptions": counts.get(tokens, 0.0)}
        return line(0.1, 1.0, **metrics, **{"timing_s/gen": (seconds or {}).get(tokens, 1.0)})

    return answer


@pytest.mark.parametrize(
    ("counts", "wins"),
    [
        ({}, 32768),
        ({32768: 1.0}, 32768),
        ({16384: 1.1, 32768: 50.0}, None),
        ({16384: 0.5, 32768: 50.0}, 16384),
        ({8192: 50.0, 16384: 55.0, 32768: 55.1}, 16384),
        ({8192: 50.0, 16384: 80.0, 4096: 0.0, 2048: 0.0}, None),
        ({8192: 0.5, 16384: 1.0}, 32768),
    ],
)
def test_a_rung_that_preempts_cannot_win_unless_the_baseline_preempts_as_much(counts, wins):
    played = play(token_stage(constraints=(PREEMPTIONS,)), BASE, preempting(counts))
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == wins


def test_what_excludes_a_rung_is_in_the_notes_with_the_baselines_own_count():
    plain = play(token_stage(constraints=(PREEMPTIONS,)), BASE, preempting({16384: 50.0}))
    assert any("breaks: mean preemptions 50 is over 1" in n for n in plain.choice.notes)
    moved = play(token_stage(constraints=(PREEMPTIONS,)), BASE, preempting({8192: 10.0, 16384: 50.0}))
    assert any("mean preemptions 50 is over 11, the baseline's 10 and 10%" in n for n in moved.choice.notes)


def test_where_preemptions_are_not_logged_nothing_is_excluded():
    played = play(token_stage(constraints=(PREEMPTIONS,)), BASE, rates({8192: 100, 16384: 120, 32768: 110}))
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 16384


@pytest.mark.parametrize(("low", "slack", "wins"), [(5.0, None, None), (5.0, 0.1, 16384), (5.0, 0.0, None)])
def test_a_lower_bound_moves_with_the_baseline_only_where_it_has_a_slack(low, slack, wins):
    def answer(proposal, overrides):
        tokens = overrides.get(keys.MAX_BATCHED_TOKENS)
        spare = 3.8 if tokens == 16384 else 4.0
        rate = {16384: 150, 8192: 100}.get(tokens, 10)
        return line(0.1, 1.0, **{"sweep/rollout_tokens_per_s": rate, "sweep/free_gib_min": spare})

    floor = Constraint("free_gib", "min", low=low, baseline_slack=slack)
    played = play(token_stage(constraints=(floor,)), BASE, answer)
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == wins


@pytest.mark.parametrize(("seconds", "noted"), [(3.0, True), (1.0, False), (0.5, False)])
def test_a_winner_whose_generation_takes_longer_than_the_starts_says_so(seconds: float, noted: bool):
    played = play(token_stage(), BASE, preempting({}, {16384: seconds, 32768: seconds}))
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 32768
    assert any("timing_s/gen rose from 1 s to 3 s" in n for n in played.choice.notes) is noted


def peaking(peaks: dict[tuple[int, float], float], rate: float = 150.0):
    """The start allocates 20 GiB; a rung, at this token budget and share of the memory, what is said here."""

    def answer(proposal, overrides):
        tokens, share = overrides.get(keys.MAX_BATCHED_TOKENS), overrides.get(keys.MEMORY_UTILIZATION)
        found = 100.0 if tokens == 8192 else (rate if tokens == 16384 else 10.0)
        metrics = {"sweep/rollout_tokens_per_s": found}
        return line(0.1, 1.0, **metrics, **{"actor/perf/max_memory_allocated_gb": peaks.get((tokens, share), 20.0)})

    return answer


BACK = Rollback(step=0.1, least=0.3)
AT_HALF = BASE.merged({keys.MEMORY_UTILIZATION: 0.5})


@pytest.mark.parametrize(("peak", "shares"), [(22.0, [None]), (22.1, [None, 0.4])])
def test_a_rung_whose_peak_jumps_by_more_than_a_tenth_is_tried_again_with_less_for_the_rollout(
    peak: float, shares: list[float | None]
):
    played = play(token_stage(rollback=BACK), AT_HALF, peaking({(16384, 0.5): peak, (16384, 0.4): 20.0}))
    tried = [r.settings for r in played.records if r.settings.get(keys.MAX_BATCHED_TOKENS) == 16384]
    assert [settings.get(keys.MEMORY_UTILIZATION) for settings in tried] == shares
    assert played.choice.settings == tried[-1]


def test_a_rung_that_jumps_in_spite_of_it_cannot_win():
    played = play(token_stage(rollback=BACK), AT_HALF, peaking({(16384, 0.5): 30.0, (16384, 0.4): 29.0}))
    assert played.choice.settings.items == ()
    assert any("over the start's 20 by more than 10%" in note for note in played.choice.notes)


@pytest.mark.parametrize(("start", "tries"), [(0.4, 2), (0.39, 1)])
def test_the_share_is_not_taken_back_under_its_floor(start: float, tries: int):
    base = BASE.merged({keys.MEMORY_UTILIZATION: start})
    played = play(token_stage(rollback=BACK), base, peaking({(16384, start): 30.0}))
    assert sum(r.settings.get(keys.MAX_BATCHED_TOKENS) == 16384 for r in played.records) == tries
    assert (played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 16384) is (tries == 2)


def test_a_share_that_is_not_set_is_verls_and_memory_that_is_not_measured_never_jumps():
    played = play(token_stage(rollback=BACK), BASE, peaking({(16384, None): 30.0}))
    assert played.choice.settings.get(keys.MEMORY_UTILIZATION) == 0.4
    unmeasured = play(token_stage(rollback=BACK), BASE, rates({8192: 100, 16384: 120, 32768: 110}))
    assert unmeasured.choice.settings.get(keys.MEMORY_UTILIZATION) is None


def test_without_room_for_another_trial_a_jump_only_rules_the_rung_out():
    played = play(token_stage(trials=2, rollback=BACK), AT_HALF, peaking({(16384, 0.5): 30.0}))
    assert len(played.records) == 2 and played.choice.settings.items == ()


def test_a_rung_that_died_of_memory_ends_the_climb():
    def answer(proposal, overrides):
        tokens = overrides.get(keys.MAX_BATCHED_TOKENS)
        return died() if tokens >= 16384 else rates({8192: 100, 4096: 90})(proposal, overrides)

    played = play(token_stage(), BASE, answer)
    assert 32768 not in played.tried(keys.MAX_BATCHED_TOKENS)
    assert played.choice.settings.items == ()


def test_a_spent_budget_ends_the_ladder_with_what_is_measured():
    played = play(token_stage(trials=2), BASE, rates({8192: 100, 16384: 120}))
    assert len(played.records) == 2
    assert played.choice.settings.get(keys.MAX_BATCHED_TOKENS) == 16384


@pytest.mark.parametrize(
    ("failure", "tried"), [(FailureClass.ENV_FAULT, [16384, 4096, 2048]), (FailureClass.OOM_GPU, [16384, 4096])]
)
def test_a_rung_that_the_machine_ended_is_not_counted_against_the_budget(failure, tried):
    def answer(proposal, overrides):
        if overrides.get(keys.MAX_BATCHED_TOKENS) == 16384:
            return Failed(failure, "no route to host")
        return rates({8192: 100, 4096: 110, 2048: 120})(proposal, overrides)

    played = play(token_stage(trials=3), BASE, answer)
    assert played.tried(keys.MAX_BATCHED_TOKENS) == tried


def test_a_dead_baseline_halts():
    assert isinstance(play(token_stage(), BASE, lambda p, o: died()).decision, Halt)


def test_what_is_to_be_known_of_a_ladders_rungs_is_in_the_winners_notes():
    (ladder,) = token_stage().rule.ladders
    noted = replace(token_stage(), rule=LadderRule((replace(ladder, note="no clamp"),)))
    assert "no clamp" in play(noted, BASE, rates({8192: 100, 16384: 90, 4096: 90})).choice.notes


def lr_stage() -> Stage:
    lr = Ladder("lr", tuple(Rung(f"{v:g}", Overrides.of({keys.ACTOR_LR: v})) for v in (5e-7, 1e-6, 1.5e-6, 2e-6)))
    lam = Ladder("lam", tuple(Rung(f"{v}", Overrides.of({keys.LAM: v})) for v in (0.95, 0.97, 0.99)), climb=False)
    return Stage(
        name="lr_lambda",
        knobs=(Knob(keys.ACTOR_LR, 5e-7, 5e-6, log=True), Knob(keys.LAM, 0.95, 0.99)),
        rule=LadderRule((lr, lam)),
        objective="height_and_smoothness",
        budget=StageBudget(trials=12, steps=40, warmup_steps=2),
    )


def articles_answer(proposal, overrides):
    """S1: 1.5e-6 is best, 2e-6 oscillates; lam 0.97 is best here."""
    lr, lam = overrides.get(keys.ACTOR_LR), overrides.get(keys.LAM)
    gain = {1e-6: 0.3, 1.5e-6: 0.5, 2e-6: 0.5, 5e-7: 0.1}[lr] * {1.0: 1.0, 0.95: 0.9, 0.97: 1.3, 0.99: 1.1}[lam]
    return line(gain, 1.0, wobble=0.3 if lr == 2e-6 else 0.0)


def test_the_articles_learning_rate_wins_and_lam_is_tuned_after_it():
    played = play(lr_stage(), Overrides.of({keys.ACTOR_LR: 1e-6, keys.LAM: 1.0}), articles_answer)
    assert played.choice.settings.get(keys.ACTOR_LR) == 1.5e-6
    assert played.choice.settings.get(keys.LAM) == 0.97


def test_lr_and_lam_are_never_moved_at_once():
    played = play(lr_stage(), Overrides.of({keys.ACTOR_LR: 1e-6, keys.LAM: 1.0}), articles_answer)
    lam_trials = [r for r in played.records if r.settings.get(keys.LAM) is not None]
    assert {r.settings.get(keys.ACTOR_LR) for r in lam_trials} == {1.5e-6}
    first_lam = played.records.index(lam_trials[0])
    assert all(r.settings.get(keys.LAM) is not None for r in played.records[first_lam:])


def test_a_tie_among_rungs_without_an_order_of_cost_changes_nothing():
    def answer(proposal, overrides):
        return line(0.5, 1.0) if overrides.get(keys.ACTOR_LR) == 1.5e-6 else line(0.3, 1.0)

    played = play(lr_stage(), Overrides.of({keys.ACTOR_LR: 1e-6, keys.LAM: 0.97}), answer)
    assert played.choice.settings.get(keys.ACTOR_LR) == 1.5e-6
    assert played.choice.settings.get(keys.LAM) is None


def test_where_no_rung_may_win_the_configuration_stays_as_it_is():
    def answer(proposal, overrides):
        return line(0.1, 1.0, **{"sweep/rollout_tokens_per_s": 100.0, "sweep/free_gib_min": 1.0})

    played = play(token_stage(constraints=(Constraint("free_gib", "min", low=5.0),)), BASE, answer)
    assert len(played.records) > 1 and played.choice.settings == NOTHING


def test_what_the_stage_fixes_is_on_every_rung_and_frozen_with_the_winner():
    stage = replace(token_stage(), fixed=Overrides.of({keys.MEMORY_UTILIZATION: 0.6}))
    played = play(stage, BASE, rates({8192: 100, 16384: 120, 32768: 110}))
    assert {r.settings.get(keys.MEMORY_UTILIZATION) for r in played.records[1:]} == {0.6}
    assert played.choice.settings.get(keys.MEMORY_UTILIZATION) == 0.6
