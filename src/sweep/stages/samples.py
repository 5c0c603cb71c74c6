"""What can be said of a stage before it begins: `samples`, candidates that it may try, and `out_of_range`.

Samples come in groups, of each of which one must be able to run: where every value of a knob or every rung of a ladder
is refused, the fault lies in what the stage stands on, not in one of them. The baseline is in none.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides, bare
from sweep.core.stage import BracketRule, ConfirmRule, CustomRule, EtaRule, Knob, LadderRule, SearchRule, Stage
from sweep.stages.arms import BASELINE
from sweep.stages.axis import Axis

Group = tuple[Overrides, ...]
"""Settings over the stage's base, the likeliest first."""


def samples(stage: Stage, base: Overrides) -> Iterator[Group]:
    """The groups of a stage that stands on this base."""
    match stage.rule:
        case LadderRule(ladders):
            for ladder in ladders:
                yield tuple(stage.fixed.merged(rung.settings) for rung in ladder.rungs)
        case ConfirmRule(beside):
            yield from ((settings,) for _, settings in beside)
        case SearchRule(start=start):
            yield from ((stage.fixed.merged(settings),) for settings in start)
            yield from (_values(stage, knob, base) for knob in stage.knobs)
        case BracketRule() | EtaRule():
            yield from (_values(stage, knob, base) for knob in stage.knobs)
        case CustomRule():
            return


def out_of_range(stage: Stage, base: Overrides) -> Iterator[str]:
    """In words, the knobs that stand outside the range in which they are searched; their value competes as well."""
    if not isinstance(stage.rule, BracketRule | SearchRule):
        return
    for knob in stage.knobs:
        if said := Axis(stage, BracketRule(), knob, BASELINE, base).outside:
            yield f"stage {stage.name}: {said}, where it is searched; it stays unless a value in there scores more"


def searched_keys(stage: Stage) -> frozenset[str]:
    """The verl keys, without a leading +, whose values the stage compares."""
    found = {knob.key for knob in stage.knobs}
    if isinstance(stage.rule, LadderRule):
        found |= {key for ladder in stage.rule.ladders for rung in ladder.rungs for key, _ in rung.settings}
    return frozenset(bare(key) for key in found)


def _values(stage: Stage, knob: Knob, base: Overrides) -> Group:
    """Where the knob stands, moved into its range, then the ends of the range; a mini-batch only where it stands."""
    axis = Axis(stage, BracketRule(), knob, BASELINE, base)  # a rule bears on the moves, which are not asked for
    positions = (axis.start,) if knob.key == keys.MINI_BATCH else (axis.start, axis.low, axis.high)
    return tuple(stage.fixed.merged(axis.arm(position).settings) for position in positions)
