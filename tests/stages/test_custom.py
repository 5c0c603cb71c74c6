"""Rules and objectives of the user's: what they return is looked at before anything is done with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core.decision import Ask, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import CustomRule, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.core.winner import Choice, Score
from sweep.errors import ConfigError
from sweep.stages import decide, objective
from tests.stages.histories import line

STAGE = Stage("mine", (), SearchRule(), "area_per_second", StageBudget(2, steps=40, warmup_steps=2))


def three(*_):
    return 3


def test_a_rule_that_returns_no_decision_ends_the_campaign_instead_of_being_asked_for_ever():
    stage = replace(STAGE, rule=CustomRule(f"{__name__}:three"))
    with pytest.raises(ConfigError, match=r"stage mine: rule .*:three must return one of .* decisions, .*Halt, got 3"):
        decide(stage, Progress(NOTHING, (), (1,)))


def test_an_objective_that_returns_no_score_is_named():
    stage = replace(STAGE, objective=f"{__name__}:three")
    with pytest.raises(ConfigError, match=r"stage mine: objective .*:three must return a Score, got 3"):
        objective.score(stage, line(0.3, 1.0))


def failing(*_):
    return {}["reward"]


def test_a_rule_or_objective_that_raises_is_named_with_its_error_and_line():
    said = r'raised KeyError: .reward. \(test_custom.py, line \d+: return \{\}\["reward"\]\)'
    stage = replace(STAGE, rule=CustomRule(f"{__name__}:failing"), objective=f"{__name__}:failing")
    with pytest.raises(ConfigError, match=rf"stage mine: rule .*:failing {said}"):
        decide(stage, Progress(NOTHING, (), (1,)))
    with pytest.raises(ConfigError, match=rf"stage mine: objective .*:failing {said}"):
        objective.score(stage, line(0.3, 1.0))


SEEN = Record(Trial(NOTHING, 1, 40), NOTHING, NOTHING, "baseline", line(0.3, 1.0))
MOVED = Overrides.of({"algorithm.lam": 0.96})
PROPOSAL = Proposal(MOVED, 1, MOVED)
CHOICE = Choice(MOVED, MOVED, Score(2.0), Score(1.0), (SEEN.trial.id,), "higher")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Freeze(None), "Freeze.choice must hold Choice, got None"),
        (Freeze(replace(CHOICE, settings={"algorithm.lam": 0.96})), "Choice.settings must hold Overrides, got {"),
        (Freeze(replace(CHOICE, score=2.0)), r"Choice\.score must hold Score, got 2\.0"),
        (Freeze(replace(CHOICE, score=Score("2"))), r"Score\.value must hold int or float, got '2'"),
        (Freeze(replace(CHOICE, trial_ids=SEEN.trial.id)), "Choice.trial_ids must hold tuple, got '"),
        (Freeze(replace(CHOICE, trial_ids=(SEEN,))), "Choice.trial_ids must hold str, got Record"),
        (Freeze(replace(CHOICE, reason=None)), "Choice.reason must hold str, got None"),
        (Launch(("a",)), "Launch.proposals must hold Proposal, got 'a'"),
        (Launch(None), "Launch.proposals must hold tuple or list, got None"),
        (Launch((replace(PROPOSAL, seed="1"),)), "Proposal.seed must hold int, got '1'"),
        (Launch((replace(PROPOSAL, settings={}),)), "Proposal.settings must hold Overrides, got {}"),
        (Launch(()), "returned a Launch without proposals"),
        (Launch((Proposal(NOTHING, 1),)), "asks again for the baseline with seed 1, which has ended"),
        (Wait(), r"returned Wait\(\), but no trial is running"),
        (Halt(3), "Halt.reason must hold str, got 3"),
        (Ask(1), r"must return one of .* decisions, Launch, Wait, Freeze or Halt, got Ask"),
    ],
)
def test_a_decision_that_the_loop_cannot_carry_out_is_refused_with_what_it_must_hold(answer, says, monkeypatch):
    with pytest.raises(ConfigError, match=rf"stage mine: rule .*:answered.* {says}"):
        decide(answering(answer, monkeypatch), Progress(NOTHING, (SEEN,), (1,)))


def answering(answer, monkeypatch) -> Stage:
    monkeypatch.setattr(f"{__name__}.answered", lambda *_: answer)
    return replace(STAGE, rule=CustomRule(f"{__name__}:answered"))


def answered(*_):
    """Set by the tests."""


@pytest.mark.parametrize("answer", [Freeze(CHOICE), Launch((PROPOSAL,)), Launch([PROPOSAL]), Halt("no gain")])
def test_a_sound_decision_passes_as_it_is(answer, monkeypatch):
    assert decide(answering(answer, monkeypatch), Progress(NOTHING, (SEEN,), (1,))) == answer


def test_waiting_for_a_running_trial_is_sound(monkeypatch):
    running = replace(SEEN, outcome=None)
    assert decide(answering(Wait(), monkeypatch), Progress(NOTHING, (running,), (1,))) == Wait()
