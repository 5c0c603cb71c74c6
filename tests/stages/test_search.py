"""Search: baseline and start values first, then the sampler, and the baseline is kept unless beaten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core import verl_keys as keys
from sweep.core.decision import Ask, Freeze, Halt, Launch, Wait
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import Constraint, Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.stages import decide
from tests.stages.histories import died, line

FIXED = Overrides.of({keys.KL_TYPE: "band"})
BASE = Overrides.of({keys.KL_COEF: 0.001, keys.KL_IN_REWARD: True})


def stage(trials: int = 4) -> Stage:
    start = (Overrides.of({keys.KL_COEF: 0.001}), Overrides.of({keys.KL_COEF: 0.0005}))
    return Stage(
        name="kl",
        knobs=(Knob(keys.KL_COEF, 0.0005, 0.01, log=True),),
        rule=SearchRule(start=start),
        objective="reward_in_band",
        budget=StageBudget(trials=trials, steps=40, warmup_steps=2),
        fixed=FIXED,
    )


def record(settings: Overrides, outcome) -> Record:
    return Record(Trial(BASE.merged(settings), 1, 40), settings, settings, outcome=outcome)


def with_band(coef: float) -> Overrides:
    return FIXED.merged({keys.KL_COEF: coef})


def test_the_baseline_and_the_start_values_with_the_controller_come_first():
    decision = decide(stage(), Progress(BASE, (), (1,)))
    assert isinstance(decision, Launch)
    assert [p.settings for p in decision.proposals] == [NOTHING, with_band(0.001), with_band(0.0005)]


def test_with_several_seeds_they_come_seed_by_seed():
    several = replace(stage(), budget=replace(stage().budget, seeds=2))
    decision = decide(several, Progress(BASE, (), (2, 1)))
    assert isinstance(decision, Launch)
    arms = [NOTHING, with_band(0.001), with_band(0.0005)]
    assert [(p.seed, p.settings) for p in decision.proposals] == [(s, a) for s in (2, 1) for a in arms]


def test_then_the_sampler_is_asked_while_the_budget_lasts():
    records = tuple(record(s, line(0.3, 1.0)) for s in (NOTHING, with_band(0.001), with_band(0.0005)))
    assert decide(stage(), Progress(BASE, records, (1,))) == Ask(1)


def test_it_waits_for_running_trials_once_the_budget_is_given_out():
    records = (
        record(NOTHING, line(0.3, 1.0)),
        *(record(with_band(c), None) for c in (0.001, 0.0005, 0.002)),
    )
    assert decide(stage(), Progress(BASE, records, (1,))) == Wait()


def finished(gains: dict[float, float], kl: dict[float, float] | None = None):
    kl = kl or {}
    records = (
        record(NOTHING, line(0.3, 1.0, **{"actor/reward_kl_penalty": 0.1})),
        *(record(with_band(c), line(g, 1.0, **{"actor/reward_kl_penalty": kl.get(c, 0.1)})) for c, g in gains.items()),
    )
    return decide(stage(1 + len(gains)), Progress(BASE, records, (1,)))


def test_the_best_coefficient_is_frozen_together_with_the_controller():
    decision = finished({0.001: 0.4, 0.0005: 0.5, 0.003: 0.35})
    assert isinstance(decision, Freeze)
    assert decision.choice.settings == with_band(0.0005)


def test_reward_bought_with_kl_out_of_its_band_does_not_win():
    decision = finished({0.001: 0.4, 0.0005: 0.5, 0.003: 0.35}, kl={0.0005: 0.4})
    assert isinstance(decision, Freeze)
    assert decision.choice.settings == with_band(0.001)


def test_the_baseline_is_kept_when_nothing_beats_it():
    decision = finished({0.001: 0.3, 0.0005: 0.29, 0.003: 0.2})
    assert isinstance(decision, Freeze)
    assert decision.choice.settings == NOTHING


def test_a_dead_baseline_halts():
    records = (record(NOTHING, died()), *(record(with_band(c), line(0.3, 1.0)) for c in (0.001, 0.0005, 0.002)))
    assert isinstance(decide(stage(), Progress(BASE, records, (1,))), Halt)


def test_candidates_that_only_rounding_tells_apart_are_equal_and_the_first_one_wins():
    gains = (0.2, 0.5, 0.5 * (1 + 1e-12), 0.3)
    settings = (NOTHING, with_band(0.001), with_band(0.0005), with_band(0.002))
    records = tuple(record(s, line(g, 1.0)) for s, g in zip(settings, gains, strict=True))
    assert decide(stage(), Progress(BASE, records, (1,))).choice.settings == with_band(0.001)


@pytest.mark.parametrize(("failure", "more"), [(FailureClass.ENV_FAULT, True), (FailureClass.OOM_GPU, False)])
def test_an_arm_that_the_machine_ended_is_asked_for_again_as_another(failure, more):
    records = (
        *(record(s, line(0.3, 1.0)) for s in (NOTHING, with_band(0.001), with_band(0.0005))),
        record(with_band(0.003), Failed(failure, "no route to host")),
    )
    assert (decide(stage(4), Progress(BASE, records, (1,))) == Ask(1)) is more


def test_a_machine_that_ends_every_trial_does_not_make_the_search_endless():
    lost = tuple(record(with_band(0.0005 + 0.0001 * n), Failed(FailureClass.ENV_FAULT, "gone")) for n in range(20))
    for count in range(20):
        decision = decide(stage(4), Progress(BASE, (record(NOTHING, line(0.3, 1.0)), *lost[:count]), (1,)))
        if isinstance(decision, Freeze):
            break
    assert isinstance(decision, Freeze) and count <= 8


def test_where_no_candidate_may_win_the_reason_says_why_and_the_notes_by_what():
    narrow = replace(stage(3), constraints=(Constraint("step_seconds", high=2.0),))
    records = (
        record(NOTHING, line(0.3, 1.0)),
        record(with_band(0.001), line(0.6, 3.0)),
        record(with_band(0.0005), died()),
    )
    decision = decide(narrow, Progress(BASE, records, (1,)))
    assert isinstance(decision, Freeze) and decision.choice.settings == NOTHING
    assert "of 2 candidates 1 broke a constraint, 1 died or have no score; the baseline's" in decision.choice.reason
    assert decision.choice.notes[1].endswith(", breaks: mean step_seconds 3 is over 2")
