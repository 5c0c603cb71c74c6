"""The confirmation: winner and base on new seeds, what it says, and what it gives up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core import verl_keys as keys
from sweep.core.decision import Freeze, Halt, Launch
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record, replicated
from sweep.core.stage import ConfirmRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.stages import decide
from tests.stages.histories import died, line, nan_run

BASE = Overrides.of({keys.ACTOR_LR: 1e-6})
FOUND = Overrides.of({keys.ACTOR_LR: 2e-6, keys.LAM: 0.97})
SEEDS = (1001, 1002, 1003)


def stage(seeds: int = 3) -> Stage:
    return Stage("confirm", (), ConfirmRule(), "area_per_second", StageBudget(2, steps=40, seeds=seeds, warmup_steps=2))


def confirmed(answer, *, seeds=SEEDS, found=FOUND, **known):
    """The confirmation played to its end; `answer(is_winner, seed)` is how each trial ends."""
    records: tuple[Record, ...] = ()
    for _ in range(9):
        decision = decide(stage(len(seeds)), Progress(BASE, records, seeds, found=found, **known))
        if not isinstance(decision, Launch):
            return decision, records
        records += tuple(
            Record(
                Trial(BASE.merged(p.settings), p.seed, 40),
                p.settings,
                p.requested,
                p.note,
                answer(p.settings == found, p.seed),
            )
            for p in decision.proposals
        )
    raise AssertionError("no end")


def gains(by: float, noise: float = 0.01):
    """The winner gains that much more, and every run a little of its own."""
    return lambda winner, seed: line(
        (0.4 * (1 + by) if winner else 0.4) * (1 + noise * ((7 * seed + winner) % 3 - 1)), 2.0
    )


def test_both_arms_run_on_every_new_seed_one_beside_the_other():
    _, records = confirmed(gains(0.1))
    assert [r.trial.seed for r in records] == [1001, 1001, 1002, 1002, 1003, 1003]
    assert [r.settings == FOUND for r in records] == [False, True] * 3


def test_a_real_gain_is_confirmed_beside_what_the_search_saw():
    decision, _ = confirmed(gains(0.3), searched=(line(0.6, 2.0), line(0.4, 2.0)))
    assert decision.choice.settings == FOUND
    assert decision.choice.reason.startswith("looked +50%, confirmed +3")
    assert "better than the base" in decision.choice.reason


def test_a_gain_that_was_luck_is_said_to_be_and_the_winner_stays():
    decision, _ = confirmed(gains(0.0, noise=0.05))
    assert decision.choice.settings == FOUND
    assert decision.choice.reason.startswith("not confirmed: ")
    assert "cannot tell it from the base; more of them (confirm.seeds) would" in decision.choice.reason
    assert "-0%" not in decision.choice.reason


def test_an_interval_that_leans_on_an_assumed_spread_confirms_nothing_and_does_not_contradict_itself():
    decision, _ = confirmed(gains(0.7, noise=0.08), seeds=SEEDS[:2], searched=(line(0.6, 2.0), line(0.4, 2.0)))
    assert decision.choice.ratio.low > 1 and decision.choice.ratio.assumed
    assert decision.choice.reason.startswith("looked +50%, not confirmed: +")
    assert "too little to tell it from the base, whatever the interval says" in decision.choice.reason


def test_a_winner_that_is_worse_on_new_seeds_is_given_up():
    decision, _ = confirmed(gains(-0.3))
    assert decision.choice.settings == NOTHING
    assert decision.choice.reason.startswith("not confirmed: -")
    assert "worse than the base, which is kept" in decision.choice.reason


def test_a_winner_that_dies_on_new_seeds_is_given_up_and_a_base_that_dies_halts():
    lost, _ = confirmed(lambda winner, seed: nan_run() if winner else line(0.4, 2.0))
    halted, _ = confirmed(lambda winner, seed: died())
    assert lost.choice.settings == NOTHING
    assert "did not finish" in lost.choice.reason
    assert isinstance(halted, Halt)


def test_nothing_found_needs_no_trial():
    decision, records = confirmed(gains(0.1), found=Overrides.of({keys.ACTOR_LR: 1e-6}))
    assert records == ()
    assert "nothing to confirm" in decision.choice.reason


def test_the_spread_of_arms_that_the_search_replicated_narrows_the_interval():
    quiet = tuple(tuple(line(g * (1 + 0.002 * i), 2.0) for i in range(4)) for g in (0.3, 0.4, 0.5, 0.6))
    alone, _ = confirmed(gains(0.05), seeds=SEEDS[:2])
    helped, _ = confirmed(gains(0.05), seeds=SEEDS[:2], replicates=quiet)
    assert "not confirmed" in alone.choice.reason
    assert "better than the base" in helped.choice.reason


def test_replicates_are_arms_that_finished_on_two_seeds_in_the_order_of_their_seeds():
    def record(seed, lr, outcome, steps=40):
        return Record(Trial(Overrides.of({keys.ACTOR_LR: lr}), seed, steps), NOTHING, NOTHING, "", outcome)

    late, early = line(0.4, 2.0), line(0.3, 2.0)
    found = replicated([record(2, 1.0, late), record(1, 1.0, early), record(1, 2.0, early), record(2, 2.0, died())])
    assert found == ((early, late),)


VERLS_OWN = Overrides.of({keys.ACTOR_LR: 5e-7})


def beside(verls_own, found=FOUND):
    """The confirmation with a further configuration, whose trials end so; winner and base as in `gains(0.3)`."""
    records: tuple[Record, ...] = ()
    rule = ConfirmRule((("verl_defaults", VERLS_OWN),))
    asked = replace(stage(), rule=rule)
    while True:
        decision = decide(asked, Progress(BASE, records, SEEDS, found=found))
        if not isinstance(decision, Launch):
            return decision, records
        records += tuple(
            Record(
                Trial(BASE.merged(p.settings), p.seed, 40), p.settings, p.requested, p.note,
                verls_own(p.seed) if p.settings == VERLS_OWN else gains(0.3)(p.settings == FOUND, p.seed),
            )
            for p in decision.proposals
        )  # fmt: skip


def test_a_further_configuration_runs_on_the_same_seeds_and_is_told_but_cannot_win():
    decision, records = beside(lambda seed: line(2.0, 2.0))
    assert [r.trial.seed for r in records] == [1001] * 3 + [1002] * 3 + [1003] * 3
    assert decision.choice.settings == FOUND
    assert "better than the base; the winner against verl_defaults: -7" in decision.choice.reason
    assert len(decision.choice.trial_ids) == 9


def test_a_further_configuration_that_dies_is_told_and_changes_nothing():
    decision, _ = beside(lambda seed: died())
    assert decision.choice.settings == FOUND and "better than the base" in decision.choice.reason
    assert "verl_defaults did not finish on any new seed" in decision.choice.reason


def test_without_a_winner_the_base_is_compared_with_the_further_configurations():
    decision, records = beside(lambda seed: line(0.2, 2.0), found=NOTHING)
    assert [(r.trial.seed, r.note) for r in records] == [
        (seed, note) for seed in SEEDS for note in ("baseline", "verl_defaults")
    ]
    assert decision.choice.settings == NOTHING
    assert "there is nothing to confirm; the base against verl_defaults: +100%" in decision.choice.reason
    assert len(decision.choice.trial_ids) == 6


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.builds(lambda g: line(g, 2.0), st.floats(-1, 1)), st.builds(died), st.builds(nan_run)),
        min_size=6,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_every_history_has_an_answer_in_any_order(outcomes, shuffle):
    drawn = iter(outcomes)
    decision, records = confirmed(lambda winner, seed: next(drawn))
    assert isinstance(decision, Freeze | Halt)
    mixed = list(records)
    shuffle.shuffle(mixed)
    assert repr(decide(stage(), Progress(BASE, tuple(mixed), SEEDS, found=FOUND))) == repr(decision)


@pytest.mark.parametrize("scale", [0.001, 40.0])
def test_units_of_reward_and_time_change_no_verdict(scale):
    def scaled(winner, seed):
        return line(scale * gains(0.3)(winner, seed).curve.score[-1], 2.0 * scale)

    plain, _ = confirmed(lambda winner, seed: line(gains(0.3)(winner, seed).curve.score[-1], 2.0))
    other, _ = confirmed(scaled)
    assert other.choice.notes == plain.choice.notes


def test_a_configuration_beside_that_is_the_base_itself_is_not_run_twice():
    same = Overrides.of({keys.ACTOR_LR: 1e-6})
    beside = replace(stage(2), rule=ConfirmRule((("own", same),)))
    records: tuple[Record, ...] = ()
    decision = decide(beside, Progress(BASE, records, SEEDS[:2], found=FOUND))
    assert isinstance(decision, Launch)
    seen = {(BASE.merged(p.settings), p.seed): p for p in decision.proposals}
    for (overrides, seed), p in seen.items():
        gain = 0.6 if p.settings == FOUND else 0.3
        records += (Record(Trial(overrides, seed, 40), p.settings, p.requested, p.note, line(gain, 2.0)),)
    assert isinstance(decide(beside, Progress(BASE, records, SEEDS[:2], found=FOUND)), Freeze)


def curve(scores, seconds=2.0):
    return replace_scores(line(0.4, seconds), tuple(scores))


def replace_scores(finished, scores):
    return replace(finished, curve=replace(finished.curve, score=scores))


def test_the_row_has_the_sign_of_the_sentence_where_the_arms_seem_to_begin_apart():
    """The winner is above the base from the first step on: scored from a start of its own it would look worse."""

    def answer(winner, seed):
        wave = 0.002 * (seed % 3)
        rise = [0.5 + 0.3 * i / 39 if winner else 0.1 + 0.5 * i / 39 for i in range(40)]
        return curve([v + wave for v in rise])

    choice = confirmed(answer)[0].choice
    assert choice.ratio.value > 1
    assert choice.score.value > choice.baseline_score.value > 0


def test_a_winner_that_gained_nothing_on_any_new_seed_is_given_up():
    """Its height above the common start scatters from seed to seed, which makes the interval as wide as one likes."""

    def answer(winner, seed):
        lift = {1001: 0.0, 1002: 0.3}[seed] if winner else 0.0
        return curve([0.1 + lift - 0.0001 * i if winner else 0.1 + 0.5 * i / 39 for i in range(40)])

    decision = confirmed(answer, seeds=SEEDS[:2])[0]
    assert decision.choice.settings == NOTHING
    assert "worse than the base, which is kept" in decision.choice.reason
    assert "the winner gained nothing on any new seed, the base on all" in decision.choice.notes
