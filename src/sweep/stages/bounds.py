"""`bounds`: how many trials a stage can need, at the fewest and at the most, before any of them is run.

Counted over arms and seeds; a trial that is known already, as a stage's baseline usually is, is still counted here.
Where a knob stands is read from the base, though a winner before may still move it.
"""

from __future__ import annotations

from sweep.core.overrides import NOTHING, Overrides
from sweep.core.stage import BracketRule, ConfirmRule, CustomRule, EtaRule, Ladder, LadderRule, SearchRule, Stage
from sweep.stages.arms import Arm
from sweep.stages.axis import Axis


def bounds(stage: Stage, base: Overrides) -> tuple[int, int]:
    """Fewest and most trials of a stage in which no trial dies."""
    seeds, most = stage.budget.seeds, stage.budget.most_trials
    match stage.rule:
        case BracketRule() as rule:
            return _bracket(stage, rule, base)
        case EtaRule(literal=literal):
            return 2, stage.budget.trials if literal else most
        case LadderRule(ladders, rollback=rollback):
            tries = 1 if rollback is None else 2  # a rung whose memory jumps is tried once more with less of it
            rungs = 1 + sum(len(ladder.rungs) for ladder in ladders) * tries
            fewest = 1 + sum(_fewest_rungs(ladder) for ladder in ladders)
            return min(fewest * seeds, most), min(rungs * seeds, most)
        case SearchRule():
            return most, most
        case ConfirmRule(beside):
            return (2 + len(beside)) * seeds, (2 + len(beside)) * seeds
        case CustomRule():
            return 1, most
    raise AssertionError(stage.rule)


def _bracket(stage: Stage, rule: BracketRule, base: Overrides) -> tuple[int, int]:
    """A value on either side settles a knob at best, one at the edge of its range. A start that the held arm is not, as
    it lies outside or has something fixed, is a value of its own."""
    fewest = widest = 1
    for i, knob in enumerate(stage.knobs):
        held = Arm(stage.fixed if i else NOTHING, NOTHING)
        axis = Axis(stage, rule, knob, held, base)
        apart = 0 if axis.arm(axis.start) is held else 1
        sides = 1 if axis.start in (axis.low, axis.high) else 2
        fewest += apart + min(sides, rule.most_points - 1)
        widest += apart + rule.most_points - 1
    knobs = len(stage.knobs)
    if rule.prove:
        most = stage.budget.most_trials
        return min(fewest, most), min(widest + 2 * (stage.budget.seeds - 1) * knobs, most)
    arms = stage.budget.trials
    return min(fewest, arms) * stage.budget.seeds, min(widest, arms) * stage.budget.seeds


def _fewest_rungs(ladder: Ladder) -> int:
    """A climb ends after one rung on either side; a ladder that is not climbed is tried whole but for its start."""
    return min(2, len(ladder.rungs)) if ladder.climb else max(0, len(ladder.rungs) - 1)
