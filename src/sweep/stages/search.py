"""Search: the baseline, the given start values, then whatever the stage's Optuna sampler proposes.

Stage `kl` searches the starting coefficient this way with the band controller switched on in every candidate
(`Stage.fixed`), so that coefficient and controller are frozen together. Source: METHOD section 3.
"""

from __future__ import annotations

import math

from sweep.core.decision import Ask, Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress
from sweep.core.stage import SearchRule, Stage
from sweep.core.winner import Choice
from sweep.stages.arms import Arm, Measured, measure, room
from sweep.stages.ladder import beats


def decide(stage: Stage, rule: SearchRule, progress: Progress) -> Decision:
    """The next candidates; once the budget is spent, the best of them that beats the baseline, or the baseline."""
    base = measure(stage, progress, Arm(NOTHING, NOTHING, "baseline"), stage.budget.seeds)
    known = [Arm(stage.fixed.merged(s), s, "start value") for s in rule.start]
    waiting = [measure(stage, progress, arm, stage.budget.seeds) for arm in known]
    missing = tuple(p for step in (base, *waiting) if isinstance(step, Launch) for p in step.proposals)
    left = room(stage, progress)
    if missing and left > 0:
        return Launch(missing[:left])
    if left > 0:
        return Ask(1)
    if progress.running:
        return Wait()
    if not isinstance(base, Measured) or not base.finished:
        return Halt("the baseline did not finish; see the failures above")
    return _freeze(stage, rule, progress, base)


def _freeze(stage: Stage, rule: SearchRule, progress: Progress, base: Measured) -> Decision:
    arms = _arms(stage, progress)
    able = [m for m in arms if m.feasible and m.arm.settings != NOTHING]
    best = max(able, key=lambda m: m.score.value, default=None)
    chosen = best if best and beats(best, base, rule.tie_margin) else base
    reason = (
        f"score {chosen.score.value:.5g} against the baseline's {base.score.value:.5g}"
        if chosen is not base
        else f"no candidate beats the baseline's {base.score.value:.5g} by more than {rule.tie_margin:.0%}; it is kept"
    )
    return Freeze(
        Choice(
            settings=chosen.arm.settings,
            requested=chosen.arm.requested,
            score=chosen.score,
            baseline_score=base.score,
            trial_ids=tuple(i for m in arms for i in m.trial_ids),
            reason=reason,
            notes=tuple(_describe(stage, m) for m in arms),
        )
    )


def _arms(stage: Stage, progress: Progress) -> list[Measured]:
    """Every candidate with an ended trial, in order of its first start."""
    seen: dict[Overrides, Measured] = {}
    for record in progress.records:
        if record.settings in seen or record.outcome is None:
            continue
        arm = Arm(record.settings, record.requested, record.note)
        seeds = len(progress.arm(record.settings))
        measured = measure(stage, progress, arm, min(seeds, stage.budget.seeds))
        if isinstance(measured, Measured):
            seen[record.settings] = measured
    return list(seen.values())


def _describe(stage: Stage, measured: Measured) -> str:
    values = ", ".join(f"{k.key.rsplit('.', 1)[-1]} {_shown(measured, k.key)}" for k in stage.knobs)
    if not measured.finished:
        return f"{values}: {'; '.join(measured.died)}"
    parts = ", ".join(f"{n} {v:.4g}" for n, v in measured.score.parts if math.isfinite(v))
    return f"{values}: score {measured.score.value:.5g} ({parts})"


def _shown(measured: Measured, key: str) -> str:
    value = measured.arm.settings.get(key)
    return f"{value:.4g}" if isinstance(value, float) else ("as before" if value is None else str(value))
