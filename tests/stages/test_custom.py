"""Rules and objectives of the user's: what they return is looked at before anything is done with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core.overrides import NOTHING
from sweep.core.progress import Progress
from sweep.core.stage import CustomRule, SearchRule, Stage, StageBudget
from sweep.errors import ConfigError
from sweep.stages import decide, objective
from tests.stages.histories import line

STAGE = Stage("mine", (), SearchRule(), "area_per_second", StageBudget(2, steps=40, warmup_steps=2))


def three(*_):
    return 3


def test_a_rule_that_returns_no_decision_ends_the_campaign_instead_of_being_asked_for_ever():
    stage = replace(STAGE, rule=CustomRule(f"{__name__}:three"))
    with pytest.raises(ConfigError, match=r"stage mine: rule .*:three must return one of .* decisions, got 3"):
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
