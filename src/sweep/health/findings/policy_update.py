"""Single updates: how far one moves the policy, how much of it is clipped, and whether rollout and trainer agree.

KL within an update should creep up, not jump. It is not KL to the reference: lowering the penalty is no answer here.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import final_level

SMALLER = (Move(Way.LOWER, keys.ACTOR_LR), Move(Way.LOWER, keys.ACTOR_CLIP_GRAD), Move(Way.RAISE, keys.MINI_BATCH))
USUAL_POINTS = 20
"""Points before that make the usual size of an update. Ours."""
SOURCE = "S1 section 4.2; METHOD section 3"


def policy_update(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings about the size of updates and about the rollout's probabilities."""
    return (*_too_large(evidence), *_jump(evidence), *_mismatch(evidence))


def _too_large(evidence: Evidence) -> tuple[Finding, ...]:
    limits = evidence.limits
    pairs = ((Quantity.UPDATE_KL, limits.update_kl), (Quantity.CLIP_FRACTION, limits.clip_fraction))
    for quantity, limit in pairs:
        series = evidence.recent_series(quantity)
        if series is not None and len(series) >= limits.all_zero_points and final_level(series.values) > limit:
            return (_large(series, f"{final_level(series.values):.3g} at the end, limit {limit:g}", Severity.WARN),)
    return ()


def _jump(evidence: Evidence) -> tuple[Finding, ...]:
    """A last-ing rise by a factor: both of the last two points far above what was usual just before."""
    kl, limits = evidence.recent_series(Quantity.UPDATE_KL), evidence.limits
    if kl is None or len(kl) < USUAL_POINTS + 2 or final_level(kl.values) > limits.update_kl:
        return ()
    usual = float(np.median(np.abs(kl.values[-USUAL_POINTS - 2 : -2])))
    now = float(np.min(kl.values[-2:]))
    if usual <= 0 or now < limits.update_kl_jump * usual or now < 0.1 * limits.update_kl:
        return ()
    return (_large(kl, f"jumped from {usual:.2g} to {now:.2g}; it should creep", Severity.INFO),)


def _large(series: Series, seen: str, severity: Severity) -> Finding:
    return Finding(
        code=Code.UPDATE_TOO_LARGE,
        severity=severity,
        metric=series.name,
        first_step=int(series.steps[0]),
        last_step=int(series.steps[-1]),
        seen=seen,
        confidence=Confidence.MEDIUM,
        advice="smaller updates: a lower learning rate, harder clipping, or fewer mini-batches a step",
        direction=SMALLER,
        source=SOURCE,
        figures=(("level", final_level(series.values)),),
    )


def _mismatch(evidence: Evidence) -> tuple[Finding, ...]:
    """Rollout and trainer give the same tokens clearly different probabilities."""
    limits = evidence.limits
    gap = evidence.recent_series(Quantity.ROLLOUT_PROBABILITY_GAP)
    correlation = evidence.recent_series(Quantity.ROLLOUT_CORRELATION)
    wide = gap is not None and final_level(gap.values) > limits.rollout_gap
    loose = correlation is not None and final_level(correlation.values) < limits.rollout_correlation
    series = gap if wide else correlation
    if series is None or not (wide or loose):
        return ()
    return (
        Finding(
            code=Code.ROLLOUT_MISMATCH,
            severity=Severity.WARN,
            metric=series.name,
            first_step=int(series.steps[0]),
            last_step=int(series.steps[-1]),
            seen=f"at {final_level(series.values):.3g}, where a healthy rollout has a mean difference under "
            f"{limits.rollout_gap:g} and a correlation above {limits.rollout_correlation:g}",
            confidence=Confidence.MEDIUM,
            advice="the data is off-policy from the first update: compare precision, chat template and sampling "
            "settings of rollout and trainer, and see that weights reach the rollout",
            direction=(Move(Way.CHECK, keys.ROLLOUT_TEMPERATURE),),
            source="verl utils/debug/metrics.py; METHOD section 6",
            figures=(("level", final_level(series.values)),),
        ),
    )
