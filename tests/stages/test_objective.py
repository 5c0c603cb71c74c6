"""Objectives: what a score may never reward, whatever the sign of the reward."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.stage import BracketRule, Knob, LadderRule, SearchRule, Stage, StageBudget
from sweep.stages import objective
from sweep.stages.against import estimates
from sweep.stages.arms import Arm, Measured
from sweep.stages.objective import Origin, origin_of
from tests.stages.histories import line, play

BAND_HIGH = 0.18
PER_SECOND = ("area_per_second", "reward_per_second")


def stage(scored_by: str, rule: BracketRule | LadderRule | SearchRule | None = None) -> Stage:
    return Stage(
        name="kl",
        knobs=(Knob(keys.KL_COEF, 0.0005, 0.01, log=True),),
        rule=rule or BracketRule(),
        objective=scored_by,
        budget=StageBudget(trials=7, steps=40, warmup_steps=2),
    )


def ended_at(level: float, kl: float):
    """A run whose score is `level` all along, with this KL."""
    found = line(0.0, 1.0, **{"actor/reward_kl_penalty": kl})
    return replace(found, curve=replace(found.curve, score=(level,) * len(found.curve.steps)))


def in_band(level: float, kl: float) -> float:
    return objective.score(stage("reward_in_band"), ended_at(level, kl)).value


@given(level=st.floats(-10, 10), kl=st.floats(BAND_HIGH, 5), more=st.floats(0, 5))
@settings(max_examples=50, deadline=None)
def test_kl_above_its_band_never_raises_a_score_and_kl_inside_never_changes_it(level, kl, more):
    assert in_band(level, kl + more) <= in_band(level, kl) + 1e-9
    assert in_band(level, 0.1) == pytest.approx(level)


@pytest.mark.parametrize(("level", "kl", "value"), [(0.5, 0.36, 0.25), (-0.5, 0.36, -0.75), (-0.5, 0.9, -0.9)])
def test_kl_above_its_band_costs_a_negative_level_what_it_costs_a_positive_one(level, kl, value):
    assert in_band(level, kl) == pytest.approx(value)


def test_a_kl_stage_of_negative_rewards_keeps_kl_in_its_band():
    def answer(proposal, overrides):
        coef = overrides.get(keys.KL_COEF)
        return ended_at(-1.0 if coef < 0.002 else -0.8, 1.2 if coef < 0.002 else 0.15)

    played = play(stage("reward_in_band"), Overrides.of({keys.KL_COEF: 0.001, keys.KL_IN_REWARD: True}), answer)
    assert float(played.choice.settings.get(keys.KL_COEF)) > 0.002


def measured(*runs) -> Measured:
    return Measured(Arm(Overrides(), Overrides()), runs, objective.Score(0.0), (), seeds=tuple(range(len(runs))))


@pytest.mark.parametrize("name", PER_SECOND)
@pytest.mark.parametrize("paces", [(1.0, 2.0), (0.5, 1.0)])
def test_a_losing_arm_gains_nothing_by_being_slow_and_stays_below_every_winner(name, paces):
    here, base = stage(name), line(0.3, 1.0)
    origin = origin_of(here, [base])
    quick, slow = (objective.score(here, line(-0.2, t), origin).value for t in paces)
    assert slow < quick < 0
    won = [objective.score(here, line(0.2, t), origin) for t in paces]
    assert won[0].value == pytest.approx(2 * won[1].value) and won[1].value > 0
    sides = estimates(here, measured(line(-0.2, paces[0])), measured(base))
    assert estimates(here, measured(line(-0.2, paces[1])), measured(base))[0][0].value < sides[0][0].value


@pytest.mark.parametrize("name", PER_SECOND)
def test_gain_and_loss_are_counted_alike_at_the_baselines_pace_and_scale_with_the_clock(name):
    here = stage(name)
    at_pace = objective.score(here, line(-0.2, 4.0), Origin(0.1, 4.0)).value
    assert at_pace == pytest.approx(-objective.score(here, line(0.2, 4.0), Origin(0.1, 4.0)).value)
    assert objective.score(here, line(-0.2, 400.0), Origin(0.1, 400.0)).value == pytest.approx(at_pace / 100)


@pytest.mark.parametrize("rule", [BracketRule(), SearchRule(), LadderRule(())])
@pytest.mark.parametrize("name", PER_SECOND)
def test_the_stores_score_of_a_slow_losing_trial_is_the_lower_one_under_every_rule(name, rule):
    from sweep.core.progress import Record
    from sweep.core.trial import Trial
    from sweep.stages import score

    here = stage(name, rule)
    base = Record(Trial(Overrides(), 1, 40), Overrides(), Overrides(), outcome=line(0.3, 1.0))
    assert score(here, line(-0.2, 2.0), [base], (1,)).value < score(here, line(-0.2, 1.0), [base], (1,)).value
