"""Confirm: the campaign's base against base and winners, on seeds that no search used.

A winner picked from few runs looks better than it is. Both arms are run anew on every seed of the stage; the ratio of
their efficiencies has an interval, and the report can say "looked +9 %, confirmed +3 % (1 to 5)". A winner that is
*worse* on the new seeds is given up for the base; one that cannot be told from it stays, and that is said. Further
configurations that the rule names run beside them, say a published one; the reason tells how the winner compares, or
the base where no stage found anything.

`progress.base` is the campaign's base here, `progress.found` what all winners before lay over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING
from sweep.core.progress import Progress
from sweep.core.stage import ConfirmRule, Stage
from sweep.core.winner import Choice, Ratio, Score
from sweep.stages import objective
from sweep.stages.against import leaning, printed
from sweep.stages.arms import BASELINE, Arm, Measured, interleaved, measure, paired
from sweep.stages.evidence import comparison, spread
from sweep.stats.efficiency import PRIOR_CV, combined, efficiency
from sweep.stats.gain import gain_of
from sweep.stats.verdict import Comparison, Verdict

UNCHANGED = "no stage changed anything: there is nothing to confirm"


def decide(stage: Stage, rule: ConfirmRule, progress: Progress) -> Decision:
    """All arms on every seed, then the winner as it stands the test."""
    changed = bool(progress.base.difference(progress.base.merged(progress.found)))
    if not changed and not rule.beside:
        return Freeze(Choice(NOTHING, NOTHING, Score(math.nan), Score(math.nan), (), UNCHANGED))
    winner = (Arm(progress.found, progress.found, "winner"),) if changed else ()
    arms = (BASELINE, *winner, *(Arm(settings, settings, name) for name, settings in rule.beside))
    sides = [measure(stage, progress, arm, len(progress.seeds)) for arm in arms]
    measured = [side for side in sides if isinstance(side, Measured)]
    if len(measured) < len(sides):
        wanted = [p for side in sides if isinstance(side, Launch) for p in side.proposals]
        return Launch(interleaved(wanted, progress)) if wanted else Wait()
    base, *others = _from_one_start(stage, progress, measured, compared=1 + len(winner))
    if not base.finished:
        return Halt(f"the baseline did not finish on any new seed: {'; '.join(base.died)}")
    if not changed:
        said = "; ".join((UNCHANGED, *(_beside(stage, progress, base, "base", other) for other in others)))
        return Freeze(Choice(NOTHING, NOTHING, base.score, base.score, _ids(measured), said))
    return _freeze(stage, progress, base, others[0], others[1:])


def _from_one_start(stage: Stage, progress: Progress, sides: list[Measured], compared: int) -> list[Measured]:
    """The arms scored from the start that those compared first have in common, as their ratio has it."""
    together = objective.origin_of(stage, [f for side in sides[:compared] for f in side.finished])
    origin = replace(together, step_seconds=objective.pace_of(stage, sides[0].finished).step_seconds)
    again = [measure(stage, progress, side.arm, len(progress.seeds), origin) for side in sides]
    return [side for side in again if isinstance(side, Measured)]


def _gained_nothing(stage: Stage, own: Measured, base: Measured) -> bool:
    """Whether no run of the winner gained above its own start on any seed, while every one of the base did."""
    gains = [[gain_of(objective.gain(stage))(f.curve.score, None) for f in runs] for runs in paired(own, base)]
    known = bool(gains[0]) and all(g.known for side in gains for g in side)
    return known and all(g.value <= 0 for g in gains[0]) and all(g.value > 0 for g in gains[1])


def _freeze(stage: Stage, progress: Progress, base: Measured, own: Measured, others: list[Measured]) -> Freeze:
    ids = _ids((base, own, *others))
    if not own.finished:
        why = f"the winner did not finish on any new seed, the base is kept: {'; '.join(own.died)}"
        return Freeze(Choice(NOTHING, NOTHING, base.score, base.score, ids, why))
    seen = comparison(stage, own, base, replicates=progress.replicates)
    if _gained_nothing(stage, own, base):
        seen = replace(seen, verdict=Verdict.WORSE, reason="the winner gained nothing on any new seed, the base on all")
    lost = seen.verdict is Verdict.WORSE
    ratio = _ratio(stage, progress, base, own)
    text = f"{_looked(stage, progress)}{_said(seen, ratio, len(progress.seeds))}"
    text = "; ".join((text, *(_beside(stage, progress, own, "winner", other) for other in others)))
    chosen = base if lost else own
    return Freeze(
        Choice(chosen.arm.settings, chosen.arm.requested, chosen.score, base.score, ids, text, (seen.reason,), ratio)
    )


def _ids(sides: Iterable[Measured]) -> tuple[str, ...]:
    return tuple(i for side in sides for i in side.trial_ids)


def _beside(stage: Stage, progress: Progress, own: Measured, name: str, other: Measured) -> str:
    """How the campaign's own configuration of that name compares with a further one."""
    if not other.finished:
        return f"{other.arm.note} did not finish on any new seed: {'; '.join(other.died)}"
    return f"the {name} against {other.arm.note}: {_shown(_ratio(stage, progress, other, own))}"


def _looked(stage: Stage, progress: Progress) -> str:
    """The ratio by which the search saw the winner."""
    if progress.searched is None:
        return ""
    own, base = ([f.curve] for f in progress.searched)
    seen = efficiency(own, base, warmup_steps=stage.budget.warmup_steps, gain=objective.gain(stage))
    return f"looked {_percent(seen.value)}, " if seen.known else ""


def _ratio(stage: Stage, progress: Progress, base: Measured, own: Measured) -> Ratio | None:
    """Winner over base with its interval."""
    sides = paired(own, base)
    known, assumed = leaning(combined(spread(stage, sides), spread(stage, progress.replicates)))
    curves = ([f.curve for f in runs] for runs in sides)
    seen = efficiency(
        *curves, warmup_steps=stage.budget.warmup_steps, pooled_variance=known, gain=objective.gain(stage)
    )
    return printed(seen, assumed)


def _shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return "nothing (no seed gives a ratio)"
    aside = f", a spread of {PRIOR_CV:.0%} assumed beside too few measured ones" if ratio.assumed else ""
    return f"{_percent(ratio.value)} ({_percent(ratio.low)} to {_percent(ratio.high)}{aside})"


def _percent(ratio: float) -> str:
    """A ratio as what it is above 1; never -0%."""
    return f"{round(ratio - 1, 2) + 0.0:+.0%}"


def _said(seen: Comparison, ratio: Ratio | None, seeds: int) -> str:
    """The ratio with what it means; the word "confirmed" only where the new seeds really tell winner and base apart.

    The verdict rests on the spread that these seeds measured, the interval may lean on an assumed one: where the two
    part, that is said.
    """
    measured = f"{_shown(ratio)} on {seeds} new seed{'s' if seeds > 1 else ''}"
    match seen.verdict:
        case Verdict.BETTER:
            return f"confirmed {measured}: better than the base"
        case Verdict.WORSE:
            return f"not confirmed: {measured}, worse than the base, which is kept"
        case Verdict.INDISTINGUISHABLE | Verdict.NOT_ENOUGH_DATA:
            told = "these seeds cannot tell it from the base"
            if ratio is not None and not ratio.low <= 1 <= ratio.high:
                told = "what these seeds measured is too little to tell it from the base, whatever the interval says"
            return f"not confirmed: {measured}, {told}; more of them (confirm.seeds) would"
