"""`certainly_worse`: whether a running trial has already shown that its arm loses, so that its rest can be saved.

The trial is given the benefit of going on rising as fast as it rises now, without flattening, and that is compared
with the whole runs of the baseline; a slow starter that is catching up is therefore left alone. Asked at a few fixed
checkpoints whose false stops add up to at most the stated rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from sweep.core.curve import Curve
from sweep.stats.efficiency import run_efficiency
from sweep.stats.estimate import UNKNOWN, Estimate, Spread, t_quantile
from sweep.stats.gain import common_start, fit_curve
from sweep.stats.timing import step_time
from sweep.stats.verdict import EQUIVALENCE_MARGIN

CHECKPOINTS = (0.5, 0.75)
"""Shares of the trial's steps after which it may be stopped. Ours: earlier, a curve that starts flat cannot be told
from one that stays flat."""

FALSE_STOP_RATE = 0.01
"""Probability that a trial of an arm as good as the baseline is stopped at any checkpoint. Ours."""

MIN_DEGREES = 2
"""Fewer degrees behind the seed-to-seed spread make nothing certain. Ours."""

RECENT_SHARE = 0.25
"""Part of the steps seen, at their end, that shows how fast the score rises now. Ours."""


def certainly_worse(
    candidate: Curve,
    bases: Sequence[Curve],
    *,
    budget_steps: int,
    warmup_steps: int,
    pooled_variance: Spread | None,
    margin: float = EQUIVALENCE_MARGIN,
    false_stop_rate: float = FALSE_STOP_RATE,
) -> str:
    """Why the running candidate cannot win any more; empty while it may, and between checkpoints."""
    if not is_checkpoint(candidate.last_step, budget_steps) or pooled_variance is None:
        return ""
    if pooled_variance.degrees < MIN_DEGREES:
        return ""
    start = common_start(c.score for c in (candidate, *bases))
    others = [run_efficiency(b, warmup_steps=warmup_steps, gain="area", start=start) for b in bases]
    others = [e for e in others if e.known and e.value > 0]
    own = _forecast(candidate, budget_steps, warmup_steps, start)
    if not own.known or not others:
        return ""
    usual = math.exp(fmean(math.log(e.value) for e in others))
    spread = pooled_variance.variance * (1 + 1 / len(others))
    within = fmean(e.relative_error**2 for e in others) / len(others)
    error = math.sqrt(spread + within + (own.standard_error / usual) ** 2)
    reach = t_quantile(1 - false_stop_rate / len(CHECKPOINTS), pooled_variance.degrees)
    best = own.value / usual + reach * error
    if not best < 1 / (1 + margin):
        return ""
    return f"after {candidate.last_step} of {budget_steps} steps eta can still reach {best:.3f} at most"


def is_checkpoint(step: int, budget_steps: int) -> bool:
    """Whether a running trial is looked at after this step."""
    return any(step == math.ceil(share * budget_steps) for share in CHECKPOINTS)


def _forecast(curve: Curve, budget_steps: int, warmup_steps: int, start: float | None) -> Estimate:
    """Reward gained per second over the whole trial if the score goes on rising as fast as it rises now."""
    fit = fit_curve(curve.score)
    seconds = step_time(curve.step_seconds, warmup_steps)
    if fit is None or not seconds.known:
        return UNKNOWN
    area = fit.above_start(_whole_area(fit.design, budget_steps), start)
    value = area.value / seconds.value
    error = math.hypot(area.standard_error / seconds.value, value * seconds.relative_error)
    return Estimate(value, error, area.degrees)


def _whole_area(design: Any, budget_steps: int) -> Any:
    """Weights of the mean height over the whole trial, the steps to come on the straight line of the recent ones."""
    seen = len(design)
    left = max(0, budget_steps - seen)
    recent = max(1, round(RECENT_SHARE * seen))
    slope = (design[-1] - design[-1 - min(recent, seen - 1)]) / min(recent, max(1, seen - 1))
    return (design.sum(axis=0) + left * design[-1] + left * (left + 1) / 2 * slope) / (seen + left)
