"""`hopeless`: whether a running trial is certain to lose against its stage's baseline, so that its rest can be saved.

Answers only at the checkpoints of `sweep.stats.early`, where its rate of false stops is stated, and only where the
spread between seeds was measured: a campaign with one seed an arm never stops early.
"""

from __future__ import annotations

from sweep.core.curve import Curve
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, replicated
from sweep.core.stage import ConfirmRule, Stage
from sweep.stages import objective
from sweep.stages.evidence import spread
from sweep.stats.early import certainly_worse, is_checkpoint
from sweep.stats.efficiency import combined

BY_EFFICIENCY = frozenset({objective.area_per_second.__name__})
"""Objectives that a running trial's reward and time tell; of the others too little is known before the end."""


def hopeless(stage: Stage, progress: Progress, settings: Overrides, curve: Curve) -> str:
    """Why the running trial of an arm with these settings cannot win any more; empty while it may."""
    if settings == NOTHING or stage.objective not in BY_EFFICIENCY or isinstance(stage.rule, ConfirmRule):
        return ""
    if not is_checkpoint(curve.last_step, stage.budget.steps):
        return ""
    bases = [r.finished.curve for r in progress.arm(NOTHING) if r.finished is not None]
    return certainly_worse(
        curve,
        bases,
        budget_steps=stage.budget.steps,
        warmup_steps=stage.budget.warmup_steps,
        pooled_variance=combined(spread(stage, replicated(progress.records)), spread(stage, progress.replicates)),
    )
