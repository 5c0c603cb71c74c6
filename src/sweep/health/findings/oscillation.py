"""Oscillation that an average hides: the raw series beside its smoothed curve.

A tracker's smoothing of 0.99 shows the level; pulses and cycles vanish in it. Both are looked at here: excursions of
gradient norm and KL from a band that the smoothed curve never leaves, and a cycle in the reward.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.findings.kl_band import band
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import episodes, periodicity, smooth

SOURCE = "S0 section 1.1 (smoothing 0.99); S1 section 3.3 (oscillation at a learning rate too high)"
MIN_POINTS = 50
"""Points before an oscillation is more than a few pulses. Ours."""


def oscillation(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings for gradient norm, KL and reward, in that order."""
    norm = evidence.recent_series(Quantity.GRAD_NORM)
    kl = evidence.recent(Quantity.REFERENCE_KL)
    found = []
    if norm is not None:
        found.append(_excursions(evidence, norm, 0.0, evidence.limits.grad_band[1]))
    if kl is not None:
        low, high = band(evidence.limits, kl.unit)
        found.append(_excursions(evidence, kl.series, low, high))
    return (*(f for f in found if f is not None), *_cycle(evidence))


def _excursions(evidence: Evidence, series: Series, low: float, high: float) -> Finding | None:
    """Raw points outside while the smoothed curve stays inside, in several separate episodes."""
    limits = evidence.limits
    if len(series) < MIN_POINTS:
        return None
    smoothed = smooth(series.values, limits.smoothing)
    settled = smoothed[len(series) // 5 :]
    if not (settled >= low).all() or not (settled <= high).all():
        return None
    above = (series.values > high) & (series.values > limits.oscillation_factor * smoothed)
    below = (series.values < low) & (series.values * limits.oscillation_factor < smoothed)
    outside = above | below
    share, bursts = float(np.mean(outside)), episodes(outside)
    if share < limits.oscillation_share or bursts < limits.oscillation_episodes:
        return None
    steps = series.steps[outside]
    return Finding(
        code=Code.HIDDEN_OSCILLATION,
        severity=Severity.WARN,
        metric=series.name,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        seen=f"smoothed at {limits.smoothing:g} it stays within {low:g} to {high:g}, but {share:.0%} of the raw points "
        f"lie outside, {limits.oscillation_factor:g} times off it or more, in {bursts} episodes; "
        f"highest {float(series.values.max()):.3g}",
        advice="updates are larger than their average shows: lower the learning rate or clip harder",
        direction=(Move(Way.LOWER, keys.ACTOR_LR), Move(Way.LOWER, keys.ACTOR_CLIP_GRAD, "1.0 to 0.5")),
        source=SOURCE,
        figures=(("share_outside", share), ("episodes", float(bursts))),
    )


def _cycle(evidence: Evidence) -> tuple[Finding, ...]:
    reward, limits = evidence.recent_series(Quantity.REWARD), evidence.limits
    if reward is None or len(reward) < MIN_POINTS:
        return ()
    cycle = periodicity(reward.values)
    swing = float(np.percentile(reward.values, 95) - np.percentile(reward.values, 5))
    if cycle.share < limits.cycle_share or cycle.p_value > limits.cycle_p_value or swing < limits.plateau_fluctuation:
        return ()
    return (
        Finding(
            code=Code.HIDDEN_OSCILLATION,
            severity=Severity.WARN,
            metric=reward.name,
            first_step=int(reward.steps[0]),
            last_step=int(reward.steps[-1]),
            seen=f"a cycle of {cycle.period_points:.0f} points carries {cycle.share:.0%} of the reward's variance",
            confidence=Confidence.MEDIUM,
            advice="lower the learning rate; if the cycle is as long as an epoch, it is the order of the data",
            direction=(Move(Way.LOWER, keys.ACTOR_LR),),
            source=SOURCE,
            figures=(("period_points", cycle.period_points), ("share", cycle.share), ("p_value", cycle.p_value)),
        ),
    )
