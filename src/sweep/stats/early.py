"""`certainly_worse`: whether a running trial has already shown that its arm loses, so that its rest can be saved.

The part of the curve so far is compared with the same steps of the baseline's runs, at a few fixed checkpoints whose
false stops add up to the stated rate. A candidate that starts slowly and would overtake later is not foreseen: only a
loss that the noise cannot explain and that exceeds the equivalence margin stops a trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from sweep.core.curve import Curve
from sweep.stats.efficiency import run_efficiency
from sweep.stats.estimate import Spread, t_quantile
from sweep.stats.gain import DEFAULT_GAIN, Gain, common_start
from sweep.stats.verdict import EQUIVALENCE_MARGIN

CHECKPOINTS = (0.25, 0.5, 0.75)
"""Shares of the trial's steps after which it may be stopped. Ours."""

FALSE_STOP_RATE = 0.01
"""Probability that a trial of an arm as good as the baseline is stopped at any checkpoint. Ours."""

MIN_DEGREES = 2
"""Fewer degrees behind the seed-to-seed spread make nothing certain. Ours."""


def certainly_worse(
    candidate: Curve,
    bases: Sequence[Curve],
    *,
    budget_steps: int,
    warmup_steps: int,
    pooled_variance: Spread | None,
    gain: Gain = DEFAULT_GAIN,
    margin: float = EQUIVALENCE_MARGIN,
    false_stop_rate: float = FALSE_STOP_RATE,
) -> str:
    """Why the running candidate cannot win any more; empty while it may, and between checkpoints."""
    if not _at_checkpoint(candidate.last_step, budget_steps) or pooled_variance is None:
        return ""
    if pooled_variance.degrees < MIN_DEGREES:
        return ""
    seen = candidate.last_step
    shown = [_until(b, seen) for b in bases]
    start = common_start(c.score for c in (candidate, *shown))
    own, *others = (run_efficiency(c, warmup_steps=warmup_steps, gain=gain, start=start) for c in (candidate, *shown))
    others = [e for e in others if e.known and e.value > 0]
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
    return f"after {seen} of {budget_steps} steps eta is {own.value / usual:.3f} and at most {best:.3f}"


def _at_checkpoint(step: int, budget_steps: int) -> bool:
    return any(step == math.ceil(share * budget_steps) for share in CHECKPOINTS)


def _until(curve: Curve, last_step: int) -> Curve:
    """The part of the curve up to that step."""
    rows = sum(step <= last_step for step in curve.steps)
    return Curve(steps=curve.steps[:rows], score=curve.score[:rows], step_seconds=curve.step_seconds[:rows])
