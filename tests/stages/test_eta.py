"""The mini-batch rule: the article's worked case, both sides of every threshold, and an answer to everything else."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from sweep.core import verl_keys as keys
from sweep.core.decision import Freeze, Halt
from sweep.core.overrides import Overrides
from sweep.core.stage import EtaRule, Knob, Stage, StageBudget
from sweep.stages.batch_lattice import batch_of, divisor_batch, nearest_batch
from sweep.stages.eta import move, rollout_note
from tests.stages.histories import died, line, nan_run, play

ARTICLE = EtaRule(literal=True)


def stage(rule: EtaRule = ARTICLE, *, trials: int = 12, seeds: int = 1) -> Stage:
    return Stage(
        name="minibatch",
        knobs=(Knob(keys.MINI_BATCH, 1, 65536, integer=True),),
        rule=rule,
        objective="reward_per_second",
        budget=StageBudget(trials=trials, steps=40, seeds=seeds, warmup_steps=2),
    )


def base(mini: int = 512, train: int = 512, gpus: int = 8) -> Overrides:
    return Overrides.of(
        {keys.MINI_BATCH: mini, keys.TRAIN_BATCH: train, keys.GPUS_PER_NODE: gpus, keys.ACTOR_MICRO_BATCH: 1}
    )


def by_mini(etas: dict[int, float], otherwise: float = 1.0):
    """Every trial gains eta times the baseline's reward in the same time."""

    def answer(proposal, overrides):
        eta = etas.get(overrides.get(keys.MINI_BATCH), otherwise) if proposal.settings.items else 1.0
        return line(0.4 * eta, 2.0)

    return answer


def test_the_articles_case_goes_from_512_to_0_7x_and_stops_near_400():
    played = play(stage(), base(), by_mini({360: 0.89, 416: 1.01}))
    first, second = played.tried(keys.MINI_BATCH)
    assert first == 360  # 0.7 x 512 = 358.4 on a lattice of 8 GPUs
    assert second in (408, 416)  # 1.15 x 360 = 414
    assert played.choice.settings.get(keys.MINI_BATCH) == second
    assert played.choice.requested.get(keys.MINI_BATCH) == pytest.approx(1.15 * 360)


@pytest.mark.parametrize(
    ("eta", "factor"),
    [
        (1.0501, 0.9),
        (1.05, None),
        (1.0201, None),
        (1.02, None),
        (1.0, None),
        (0.98, None),
        (0.9799, None),
        (0.95, None),
        (0.9499, 1.15),
        (-3.0, 1.15),
        (math.nan, 1.15),
        (math.inf, 0.9),
    ],
)
def test_every_eta_has_a_move(eta: float, factor: float | None):
    assert move(EtaRule(), eta) == factor


def test_an_eta_above_the_band_goes_on_lowering_by_a_tenth():
    played = play(stage(), base(1000, 1000, 1), by_mini({700: 1.2, 630: 1.3, 567: 1.0}))
    assert played.tried(keys.MINI_BATCH) == [700, 630, 567]


def test_a_baseline_that_gained_nothing_halts_instead_of_dividing_by_zero():
    played = play(stage(), base(), lambda p, o: line(0.0, 2.0))
    assert isinstance(played.decision, Halt)
    assert "gained" in played.decision.reason


def test_a_baseline_that_lost_reward_halts():
    assert isinstance(play(stage(), base(), lambda p, o: line(-0.2, 2.0)).decision, Halt)


def test_a_dead_baseline_halts_and_says_why():
    decision = play(stage(), base(), lambda p, o: died("CUDA out of memory")).decision
    assert isinstance(decision, Halt)
    assert "CUDA out of memory" in decision.reason


@pytest.mark.parametrize("ending", [died(), nan_run(), line(-0.3, 2.0)])
def test_a_candidate_that_died_or_lost_reward_counts_as_worse_and_the_walk_raises(ending):
    def answer(proposal, overrides):
        return ending if overrides.get(keys.MINI_BATCH) == 360 else line(0.4, 2.0)

    played = play(stage(), base(), answer)
    assert played.tried(keys.MINI_BATCH)[:2] == [360, 416]
    assert played.choice.settings.get(keys.MINI_BATCH) != 360


def test_alternating_moves_end_the_walk_on_a_measured_point():
    # 100 -> 70 (worse) -> 80 (worse) -> 92 (better: lower) -> 83 ... ends, never loops
    played = play(stage(trials=30), base(100, 100, 1), by_mini({70: 0.5, 80: 0.9, 92: 1.2, 83: 0.9}))
    tried = played.tried(keys.MINI_BATCH)
    assert len(tried) == len(set(tried)) < 12
    assert isinstance(played.decision, Freeze)


def test_the_edge_of_the_lattice_ends_the_walk():
    played = play(stage(), base(8, 8, 8), by_mini({}, otherwise=2.0))
    assert isinstance(played.decision, Freeze)
    assert any("already measured" in note for note in played.choice.notes)


def test_a_spent_budget_ends_the_walk_and_keeps_the_best():
    played = play(stage(trials=3), base(1000, 1000, 1), by_mini({700: 1.2, 630: 1.3, 567: 1.4, 510: 1.5}))
    assert len(played.records) == 3
    assert played.choice.settings.get(keys.MINI_BATCH) == 630
    assert any("budget of 3 trials" in note for note in played.choice.notes)


def test_leaving_the_safe_range_is_allowed_and_reported():
    played = play(stage(), base(1000, 1000, 1), by_mini({700: 1.0}))
    assert any("safe range" in note for note in played.choice.notes)


def test_the_train_batch_follows_the_mini_batch():
    played = play(stage(), base(256, 1024, 8), by_mini({}))
    for record in played.records:
        mini, train = record.trial.overrides.get(keys.MINI_BATCH), record.trial.overrides.get(keys.TRAIN_BATCH)
        assert train % mini == 0


def test_the_train_batch_also_suits_the_log_prob_micro_batch_and_a_pinned_critic():
    settings = base(512, 512, 8).merged({keys.LOG_PROB_MICRO_BATCH: 16, keys.CRITIC_MINI_BATCH: 128})
    for record in play(stage(), settings, by_mini({})).records:
        mini, train = record.trial.overrides.get(keys.MINI_BATCH), record.trial.overrides.get(keys.TRAIN_BATCH)
        assert train % mini == train % (8 * 16) == train % 128 == 0


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ({keys.ULYSSES: 2}, 8),
        ({keys.ACTOR_ULYSSES_OLD: 2}, 8),
        ({keys.ULYSSES: 2, keys.CRITIC_ULYSSES: 2}, 4),
        ({keys.CRITIC_ULYSSES: 2}, 8),
        ({keys.ULYSSES: 2, keys.CRITIC_MINI_BATCH: 120}, 4),
        ({keys.ULYSSES: 2, keys.CRITIC_ENABLE: False}, 4),
        ({keys.ULYSSES: 2, keys.ADV_ESTIMATOR: "grpo"}, 4),
        ({keys.ULYSSES: 2, keys.ADV_ESTIMATOR: "grpo", keys.CRITIC_ENABLE: True}, 8),
    ],
)
@pytest.mark.parametrize("follow", [True, False])
def test_mini_batches_spread_over_the_ranks_of_actor_and_of_a_critic_that_follows(settings, unit, follow):
    start = batch_of(base(120, 480).merged(settings), stage())
    tried = {
        (nearest_batch if follow else partial(divisor_batch, current=0))(start, size).mini_batch
        for size in range(1, 240)
    }
    assert math.gcd(*tried) == unit and min(tried) == unit


def test_one_run_an_arm_never_replaces_the_baseline_under_the_statistical_rule():
    played = play(stage(EtaRule(), seeds=1), base(), by_mini({360: 1.02}))
    assert played.choice.settings.items == ()
    assert "kept" in played.choice.reason


def test_a_clear_difference_over_seeds_replaces_the_baseline():
    def answer(proposal, overrides):
        wobble = 0.002 * (1 + proposal.seed % 3)
        return line((0.6 if overrides.get(keys.MINI_BATCH) == 360 else 0.4) + wobble, 2.0, wobble=0.002)

    played = play(stage(EtaRule(), seeds=4, trials=30), base(), answer, seeds=(1, 2, 3, 4))
    assert played.choice.settings.get(keys.MINI_BATCH) == 360
    assert "better" in played.choice.reason


def test_equal_arms_keep_the_baseline_after_the_last_seed():
    def answer(proposal, overrides):
        offset = 0.01 * ((proposal.seed * 7 + int(overrides.get(keys.MINI_BATCH))) % 5 - 2)
        return line(0.4 + offset, 2.0, wobble=0.002)

    played = play(stage(EtaRule(), seeds=3, trials=30), base(), answer, seeds=(1, 2, 3))
    assert played.choice.settings.items == ()


def test_a_seed_is_added_to_both_arms_when_one_is_not_enough():
    played = play(stage(EtaRule(), seeds=2, trials=30), base(), by_mini({360: 1.0}), seeds=(1, 2))
    by_arm = {
        mini: sorted(r.trial.seed for r in played.records if r.trial.overrides.get(keys.MINI_BATCH) == mini)
        for mini in (512, 360)
    }
    assert by_arm == {512: [1, 2], 360: [1, 2]}


def test_a_train_batch_that_stays_is_walked_over_its_divisors():
    rule = EtaRule(literal=True, follow_train_batch=False)
    wide = base(mini=256, train=1024).merged({keys.ACTOR_MICRO_BATCH: 4})
    played = play(stage(rule), wide, by_mini({128: 1.2, 64: 1.1, 32: 1.0}))
    assert played.tried(keys.MINI_BATCH) == [128, 64, 32]
    assert {r.trial.overrides.get(keys.TRAIN_BATCH) for r in played.records} == {1024}
    back = play(stage(rule), wide, by_mini({128: 0.8}))
    assert back.tried(keys.MINI_BATCH) == [128]
    assert "already measured" in " ".join(back.choice.notes)


def test_a_mini_batch_that_alone_divides_the_train_batch_ends_the_walk_at_once():
    rule = EtaRule(literal=True, follow_train_batch=False)
    played = play(stage(rule), base(mini=8, train=8), by_mini({}))
    assert played.tried(keys.MINI_BATCH) == []
    assert played.choice.settings.items == ()


@pytest.mark.parametrize(("share", "noted"), [(0.5, False), (0.51, True), (math.nan, False)])
def test_a_step_that_is_mostly_generation_is_reported(share: float, noted: bool):
    notes = rollout_note(share)
    assert bool(notes) == noted
    assert not noted or ("51%" in notes[0] and "token_budget" in notes[0])


def test_the_note_stands_in_the_winners_evidence():
    def answer(proposal, overrides):
        return line(0.4, 2.0, **{"timing_s/gen": 1.6})

    assert "generation takes 80% of a step" in " ".join(play(stage(), base(), answer).choice.notes)
    assert "generation takes" not in " ".join(play(stage(), base(), by_mini({})).choice.notes)


def test_what_the_stage_fixes_is_on_every_candidate():
    fixed = Overrides.of({keys.LAM: 0.9})
    played = play(replace(stage(), fixed=fixed), base(), by_mini({360: 1.0}))
    assert {r.settings.get(keys.LAM) for r in played.records[1:]} == {0.9}


@pytest.mark.parametrize(
    ("eta", "note"),
    [
        (1.02, "steady within 0.98 to 1.02"),
        (1.02 * (1 + 1e-12), "steady within 0.98 to 1.02"),  # rounding of any machine
        (1.03, "lies in a gap"),
    ],
)
def test_where_the_walk_arrives_says_whether_it_is_s0_s_optimum(eta: float, note: str):
    played = play(stage(), base(), by_mini({360: eta}))
    assert any(note in text for text in played.choice.notes)


@pytest.mark.parametrize("place", [0, 7])
def test_a_step_without_a_score_halts_no_walk_wherever_it_stands(place: int):
    def answer(proposal, overrides):
        run = line(0.4, 2.0)
        score = list(run.curve.score)
        score[place] = math.nan
        return replace(run, curve=replace(run.curve, score=tuple(score)))

    assert isinstance(play(stage(), base(), answer).decision, Freeze)


def test_the_article_s_reading_follows_the_bands_that_the_rule_has():
    wide = EtaRule(go_on_above=1.5, turn_below=0.5)
    assert "literal rule" not in str(play(stage(wide), base(), by_mini({360: 1.2})).choice.notes)
