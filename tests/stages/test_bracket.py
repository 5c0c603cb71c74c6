"""The bracket rule over made-up trials: it finds peaks, keeps its budget, and answers everything."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core import verl_keys as keys
from sweep.core.decision import Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, Constraint, EtaRule, Knob, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.stages import decide, score
from tests.stages.histories import died, line, nan_run, play

BASE = Overrides.of(
    {keys.MINI_BATCH: 256, keys.TRAIN_BATCH: 1024, keys.GPUS_PER_NODE: 1, keys.ACTOR_LR: 1e-6, keys.LAM: 0.97}
)


def minibatch(trials: int = 6, seeds: int = 1, **rule: object) -> Stage:
    given_rule = {"first_factor": 0.7, "article": EtaRule(), **rule}
    return Stage(
        name="minibatch",
        knobs=(Knob(keys.MINI_BATCH, 1, 65536, log=True, integer=True),),
        rule=BracketRule(**given_rule),  # type: ignore[arg-type]
        objective="reward_per_second",
        budget=StageBudget(trials=trials, steps=40, seeds=seeds, warmup_steps=2),
    )


def lr_lam(trials: int = 11, **rule: object) -> Stage:
    return Stage(
        name="lr_lambda",
        knobs=(Knob(keys.ACTOR_LR, 5e-7, 5e-6, log=True), Knob(keys.LAM, 0.95, 0.99)),
        rule=BracketRule(**rule),  # type: ignore[arg-type]
        objective="height_and_smoothness",
        budget=StageBudget(trials=trials, steps=40, warmup_steps=2),
    )


def peaked(key: str, best: float, width: float = 1.0):
    """Every trial gains less the further log(key) lies from log(best)."""

    def answer(proposal, overrides):
        away = math.log(overrides.get(key) / best) / width
        return line(0.4 * math.exp(-(away**2) / 4), 2.0)

    return answer


@pytest.mark.parametrize("best", [100, 180, 256, 400, 700])
def test_the_best_mini_batch_is_found_from_256(best):
    played = play(minibatch(), BASE, peaked(keys.MINI_BATCH, best))
    found = BASE.merged(played.choice.settings).get(keys.MINI_BATCH)
    assert abs(math.log(found / best)) < 0.2
    assert len(played.records) <= 6


def test_the_first_move_is_the_articles_and_its_reading_is_noted():
    played = play(minibatch(), BASE, peaked(keys.MINI_BATCH, 100))
    assert played.tried(keys.MINI_BATCH)[0] == 179  # 0.7 x 256
    assert played.records[1].requested.get(keys.MINI_BATCH) == 179.2
    assert any("the article's literal rule reads eta" in note and "at 179" in note for note in played.choice.notes)


@pytest.mark.parametrize("rule", [{}, {"article": None}, {"article": EtaRule(safe_fraction=0.31)}])
def test_every_measured_mini_batch_outside_the_safe_range_is_reported(rule):
    played = play(minibatch(**rule), BASE, peaked(keys.MINI_BATCH, 100))
    share = (rule.get("article") or EtaRule()).safe_fraction
    outside = [v for v in sorted(played.tried(keys.MINI_BATCH)) if abs(v / 256 - 1) > share]
    assert outside and (179 in outside) is (share == 0.25)
    assert [n for n in played.choice.notes if "safe range" in n] == [
        f"mini-batch {v} is outside the safe range of 256 +-{share:.0%}" for v in outside
    ]


def test_no_range_is_reported_of_a_knob_that_is_no_mini_batch():
    played = play(lr_lam(), BASE, peaked(keys.ACTOR_LR, 4e-6))
    assert not any("safe range" in n for n in played.choice.notes)


def test_where_the_article_would_stop_elsewhere_the_notes_say_so():
    played = play(minibatch(), BASE, peaked(keys.MINI_BATCH, 214, width=1.5))
    note = next(n for n in played.choice.notes if "article" in n)
    assert "would freeze 179, " in note


def test_a_lattice_that_skips_values_is_walked_on_its_own_points():
    wide = BASE.merged({keys.GPUS_PER_NODE: 8, keys.ACTOR_MICRO_BATCH: 16})  # multiples of 128
    played = play(minibatch(), wide, peaked(keys.MINI_BATCH, 500))
    tried = played.tried(keys.MINI_BATCH)
    assert all(value % 128 == 0 for value in tried)
    assert len(set(tried)) == len(tried)
    assert played.choice.settings.get(keys.MINI_BATCH) in (384, 512)
    assert all(
        r.trial.overrides.get(keys.TRAIN_BATCH) % r.trial.overrides.get(keys.MINI_BATCH) == 0 for r in played.records
    )


def test_lr_is_settled_before_lam_moves():
    played = play(lr_lam(), BASE, peaked(keys.ACTOR_LR, 2e-6))
    moved = [(r.settings.get(keys.ACTOR_LR), r.settings.get(keys.LAM)) for r in played.records]
    first_lam = next(i for i, (_, lam) in enumerate(moved) if lam is not None)
    assert all(lam is None for _, lam in moved[:first_lam])
    assert len({lr for lr, _ in moved[first_lam:]}) == 1
    assert abs(math.log(played.choice.settings.get(keys.ACTOR_LR) / 2e-6)) < 0.25


def test_what_a_stage_fixes_is_on_every_value_and_frozen_with_the_winner_also_at_the_old_value():
    fixed = Overrides.of({keys.KL_TYPE: "band"})
    stage = replace(
        lr_lam(), knobs=(Knob(keys.KL_COEF, 0.0005, 0.01, log=True),), fixed=fixed, objective="reward_per_second"
    )
    base = BASE.merged({keys.KL_COEF: 0.001})
    played = play(stage, base, peaked(keys.KL_COEF, 0.001))
    assert played.records[0].settings == NOTHING
    assert all(r.settings.get(keys.KL_TYPE) == "band" for r in played.records[1:])
    assert played.choice.settings.get(keys.KL_TYPE) == "band"
    assert played.choice.settings.get(keys.KL_COEF) == pytest.approx(0.001, rel=0.3)


@pytest.mark.parametrize("trials", [2, 3, 4, 5, 6])
def test_a_spent_budget_ends_the_walk_with_what_is_measured(trials):
    played = play(minibatch(trials=trials), BASE, peaked(keys.MINI_BATCH, 30))
    assert len(played.records) == trials
    assert any("is spent" in note for note in played.choice.notes) == (trials < 6)
    assert played.choice.settings.get(keys.MINI_BATCH) < 256


def test_a_baseline_that_died_or_gained_nothing_halts():
    dead = play(minibatch(), BASE, lambda p, o: died())
    flat = play(minibatch(), BASE, lambda p, o: line(0.0, 2.0))
    assert isinstance(dead.decision, Halt)
    assert "did not finish" in dead.decision.reason
    assert isinstance(flat.decision, Halt)
    assert "gained" in flat.decision.reason


def test_values_that_die_are_walked_away_from():
    def answer(proposal, overrides):
        mini = overrides.get(keys.MINI_BATCH)
        return nan_run() if mini < 200 else peaked(keys.MINI_BATCH, 400)(proposal, overrides)

    played = play(minibatch(), BASE, answer)
    assert 300 < played.choice.settings.get(keys.MINI_BATCH) < 550
    assert any("diverged" in note for note in played.choice.notes)


def test_a_value_outside_the_range_is_compared_from_the_ranges_edge():
    base = BASE.merged({keys.LAM: 1.0})
    stage = replace(lr_lam(), knobs=(Knob(keys.LAM, 0.95, 0.99),))
    played = play(stage, base, lambda p, o: line(0.4 - abs(o.get(keys.LAM) - 0.96), 2.0))
    assert played.choice.settings.get(keys.LAM) == pytest.approx(0.96, abs=0.006)
    assert all(0.95 <= value <= 0.99 for value in played.tried(keys.LAM))


def test_proving_keeps_the_baseline_unless_the_peak_is_better_by_interval():
    def equal(proposal, overrides):
        lucky = proposal.seed == 1 and overrides.get(keys.MINI_BATCH) < 200
        luck = 0.03 if lucky else 0.01 * math.sin(97 * proposal.seed + overrides.get(keys.MINI_BATCH))
        return line(0.4 * (1 + luck), 2.0)

    def better(proposal, overrides):
        luck = 0.01 * math.sin(97 * proposal.seed + overrides.get(keys.MINI_BATCH))
        return line(peaked(keys.MINI_BATCH, 120, 0.5)(proposal, overrides).curve.score[-1] * (1 + luck), 2.0)

    seeds = tuple(range(1, 6))
    stage = minibatch(trials=20, seeds=5, prove=True)
    kept = play(stage, BASE, equal, seeds=seeds)
    moved = play(stage, BASE, better, seeds=seeds)
    assert kept.choice.settings == NOTHING
    assert any("that value is kept" in note for note in kept.choice.notes)
    assert 90 < moved.choice.settings.get(keys.MINI_BATCH) < 160


def test_the_opening_is_asked_for_seed_by_seed_in_the_order_of_their_use_as_whole_arms():
    seeds = (7, 3, 5)
    asked = decide(minibatch(seeds=3), Progress(BASE, (), seeds))
    assert isinstance(asked, Launch)
    assert [p.seed for p in asked.proposals] == [7, 7, 3, 3, 5, 5]
    assert [p.settings == NOTHING for p in asked.proposals] == [True, False] * 3
    fixed = replace(minibatch(trials=2, seeds=3), fixed=Overrides.of({keys.LAM: 0.98}))
    asked = decide(fixed, Progress(BASE, (), seeds))
    assert isinstance(asked, Launch)
    assert [p.seed for p in asked.proposals if p.settings == NOTHING] == list(seeds) and len(asked.proposals) == 6


def test_start_and_first_move_are_asked_for_together_and_a_running_trial_is_waited_for():
    asked = decide(minibatch(), Progress(BASE, (), (1,)))
    assert isinstance(asked, Launch)
    assert len(asked.proposals) == 2
    running = tuple(
        Record(Trial(BASE.merged(p.settings), 1, 40), p.settings, p.requested, p.note) for p in asked.proposals
    )
    assert isinstance(decide(minibatch(), Progress(BASE, running, (1,))), Wait)


OUTCOMES = st.one_of(
    st.builds(lambda g: line(g, 2.0), st.floats(-1, 1)),
    st.builds(died),
    st.builds(nan_run),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(OUTCOMES, min_size=14, max_size=14), st.integers(2, 12), st.booleans(), st.randoms(use_true_random=False)
)
def test_every_history_ends_in_any_order_and_a_prefix_never_contradicts_the_whole(outcomes, trials, two_knobs, shuffle):
    stage = lr_lam(trials=trials) if two_knobs else minibatch(trials=trials)
    drawn = iter(outcomes)
    played = play(stage, BASE, lambda p, o: next(drawn))
    assert isinstance(played.decision, Freeze | Halt)
    assert len(played.records) <= max(2, trials)
    mixed = list(played.records)
    shuffle.shuffle(mixed)
    assert repr(decide(stage, Progress(BASE, tuple(mixed), (1,)))) == repr(played.decision)
    for length in range(len(played.records)):
        before = decide(stage, Progress(BASE, played.records[:length], (1,)))
        if isinstance(before, Launch):
            assert before.proposals[0].settings in [r.settings for r in played.records[length:]]


@settings(max_examples=30, deadline=None)
@given(st.floats(60, 900), st.floats(0.01, 100), st.floats(0.01, 100))
def test_units_of_reward_and_time_change_nothing(best, reward, seconds):
    def scaled(proposal, overrides):
        away = math.log(overrides.get(keys.MINI_BATCH) / best)
        rows = line(0.4 * math.exp(-(away**2) / 4), 2.0 * seconds).curve
        return replace(line(0.4, 2.0), curve=replace(rows, score=tuple(reward * v for v in rows.score)))

    plain = play(minibatch(), BASE, peaked(keys.MINI_BATCH, best))
    other = play(minibatch(), BASE, scaled)
    assert other.choice.settings == plain.choice.settings


def test_a_trials_score_is_the_one_that_its_winner_is_frozen_with():
    def answer(proposal, overrides):
        run = line(0.4 if proposal.settings == NOTHING else 0.5, 2.0)
        by = 0.0 if proposal.settings == NOTHING else 0.2
        return replace(run, curve=replace(run.curve, score=tuple(s + by for s in run.curve.score)))

    played = play(replace(minibatch(), objective="area_per_second"), BASE, answer)
    best = next(r for r in played.records if r.settings and r.settings == played.choice.settings)
    stage, frozen = replace(minibatch(), objective="area_per_second"), played.choice.score.value
    baselines = [r for r in played.records if r.settings == NOTHING]
    assert score(stage, best.finished, baselines, (1,)).value == pytest.approx(frozen)
    assert score(stage, best.finished, (), (1,)).value == pytest.approx(frozen - 0.1)  # above its own start


@pytest.mark.parametrize(
    ("lucky", "says"),
    [
        (0.401, "then lam 0.9661 scored 0.29988 against 0.3005, less in this run but the peak of the parabola"),
        (0.4, "then lam 0.965 scored 0.3 against 0.2975"),
    ],
)
def test_a_reason_says_why_a_peak_wins_that_scored_less_in_its_one_run(lucky, says):
    def answer(proposal, overrides):
        lam, lr = overrides.get(keys.LAM), overrides.get(keys.ACTOR_LR)
        started = lam == 0.97 and lr == 1e-6
        gain = lucky if started and lucky > 0.4 else 0.4 - 200 * (lam - 0.965) ** 2
        return line(gain * (1 if lr == 1e-6 else 0.5), 2.0)

    reason = play(lr_lam(), BASE, answer).choice.reason
    assert reason.startswith("lr 1e-06 stays, scored ")
    assert says in reason
    assert reason.endswith("; as it looks, confirmed by no other seeds yet")


def test_a_walk_whose_values_all_died_leaves_the_configuration_as_it_is():
    typo = Overrides.of({"algorithm.kl_ctrl.tpye": "band"})
    stage = replace(lr_lam(), knobs=lr_lam().knobs[:1], fixed=typo)
    played = play(stage, BASE, lambda p, o: line(0.3, 2.0) if p.settings == NOTHING else died())
    assert played.choice.settings == NOTHING
    assert any("no value of lr can win" in note for note in played.choice.notes)


def test_a_winner_below_a_baseline_that_is_no_value_of_the_walk_says_so():
    stage = replace(lr_lam(), knobs=lr_lam().knobs[:1], fixed=Overrides.of({keys.KL_TYPE: "band"}))
    played = play(stage, BASE, lambda p, o: line(0.4 if p.settings == NOTHING else 0.3, 2.0))
    assert played.choice.settings.get(keys.KL_TYPE) == "band"
    assert "all of which the stage gives its fixed settings" in played.choice.reason
    assert "peak of the parabola through all" not in played.choice.reason


@pytest.mark.parametrize(("best", "kept"), [(2e-5, True), (1e-6, False)])
def test_a_value_held_outside_the_range_stays_unless_the_peak_of_the_walk_beats_it(best, kept):
    base = BASE.merged({keys.ACTOR_LR: 2e-5})
    stage = replace(lr_lam(), knobs=(Knob(keys.ACTOR_LR, 5e-7, 5e-6, log=True),), objective="reward_per_second")
    choice = play(stage, base, peaked(keys.ACTOR_LR, best)).choice
    assert (choice.settings == NOTHING) is kept
    assert "lr 2e-05 lies outside 5e-07 to 5e-06" in choice.notes
    assert "fixed settings" not in choice.reason
    assert choice.score.value >= choice.baseline_score.value


def test_a_baseline_that_stays_since_everything_breaks_a_constraint_says_so():
    stage = replace(minibatch(), constraints=(Constraint("score", "max", high=0.0),))
    played = play(stage, BASE, lambda proposal, settings: line(0.4, 1.0))
    assert played.choice.settings == NOTHING
    assert "every value tried, itself included, breaks a constraint (max score 0.5 is over 0)" in played.choice.reason
