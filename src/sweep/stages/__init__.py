"""The stage rules: finished trials in, a decision out. One file a rule; `decide` picks it.

Rules replay their walk from the start each time they are asked, so a decision depends only on what finished, never
on the order in which it did, and a longer history never contradicts a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sweep.core.decision import Decision, Freeze, Halt
from sweep.core.outcome import Finished
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, ConfirmRule, CustomRule, EtaRule, LadderRule, SearchRule, Stage
from sweep.core.winner import Choice, Score
from sweep.stages import answers, bracket, confirm, eta, ladder, machines, objective, search
from sweep.stages.user_code import call


def decide(stage: Stage, progress: Progress) -> Decision:
    """What the stage needs next, by its own rule.

    Raises:
        ConfigError: if a rule of the user's fails, or returns anything but a decision.
    """
    decision = _by_rule(stage, progress)
    if not isinstance(decision, Freeze):
        return decision
    if _unscored(stage, decision.choice):
        return Halt(f"{stage.objective} gives no trial a finite score: {decision.choice.reason}")
    return machines.told(stage, progress, decision)


def _unscored(stage: Stage, choice: Choice) -> bool:
    """Whether trials were compared by scores of which not even the winner's is a number."""
    searched = not isinstance(stage.rule, ConfirmRule | CustomRule)
    return searched and bool(choice.trial_ids) and not math.isfinite(choice.score.value)


def _by_rule(stage: Stage, progress: Progress) -> Decision:
    match stage.rule:
        case BracketRule():
            return bracket.decide(stage, stage.rule, progress)
        case ConfirmRule():
            return confirm.decide(stage, stage.rule, progress)
        case EtaRule():
            return eta.decide(stage, stage.rule, progress)
        case LadderRule():
            return ladder.decide(stage, stage.rule, progress)
        case SearchRule():
            return search.decide(stage, stage.rule, progress)
        case CustomRule(import_path):
            answer = call(stage, "rule", import_path, stage, progress)
            return answers.checked(f"stage {stage.name}: rule {import_path}", progress, answer)


def score(stage: Stage, finished: Finished, baselines: Iterable[Record], seeds: Sequence[int]) -> Score:
    """The trial's score as the stage's own rule reads it beside the stage's baselines so far.

    A bracket and a confirmation let every trial begin where their baselines do; until one has finished a trial has its
    own start and pace. At its end a confirmation takes in where the winner's runs begin.
    """
    if isinstance(stage.rule, BracketRule):
        return objective.score(stage, finished, bracket.origin(stage, stage.rule, baselines, seeds))
    own = seeds[: stage.budget.seeds]
    known = [r.finished for r in baselines if r.trial.seed in own and r.finished]
    origin = objective.origin_of if isinstance(stage.rule, ConfirmRule) else objective.pace_of
    return objective.score(stage, finished, origin(stage, known))


__all__ = ["decide", "score"]
