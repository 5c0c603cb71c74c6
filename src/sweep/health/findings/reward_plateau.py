"""Whether the reward still grows: plateau, stall under noise, success at the ceiling, or too few steps to tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.limits import Limits
from sweep.health.metric_names import Quantity, Unit
from sweep.health.metric_table import Series
from sweep.health.trend import Fit, final_level, fit_line

SOURCE = "S0 section 1.1; METHOD section 6"


def plateau(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding about the growth of the reward."""
    reward = evidence.recent_series(Quantity.REWARD)
    limits = evidence.limits
    if reward is None or len(reward) < limits.plateau_min_points:
        return ()
    tail = _tail(reward, limits.plateau_steps)
    if not _covers(reward, tail, limits):
        return _too_short(reward, limits)
    flat_points = _flat_points(reward, limits.plateau_fluctuation)
    growth = _growth(fit_line(tail.steps, tail.values), limits)
    if flat_points >= len(tail):
        return () if growth.value > limits.plateau_growth else (_flat(evidence, reward, flat_points, growth),)
    for stretch in (reward, tail):
        growth = _growth(fit_line(stretch.steps, stretch.values), limits)
        if growth.highest < limits.stalled_growth and growth.highest > -limits.stalled_growth:
            return (_stalled(evidence, stretch, growth),)
    return ()


@dataclass(frozen=True, slots=True)
class _Growth:
    """Fitted rise over `plateau_steps` and its range at two standard errors."""

    value: float
    lowest: float
    highest: float


def _growth(fit: Fit, limits: Limits) -> _Growth:
    rise, error = fit.slope * limits.plateau_steps, 2 * fit.slope_error * limits.plateau_steps
    return _Growth(rise, rise - error, rise + error)


def _tail(series: Series, steps: int) -> Series:
    return series.since(int(series.steps[-1]) - steps + 1)


def _interval(series: Series) -> int:
    return int(np.median(np.diff(series.steps))) if len(series) > 1 else 1


def _covers(reward: Series, tail: Series, limits: Limits) -> bool:
    """Whether the run is as long as the stretch and the tail misses less than half of its points."""
    interval = _interval(tail)
    reaches = reward.span_steps + interval - 1 >= limits.plateau_steps
    return reaches and len(tail) * interval >= limits.plateau_coverage * limits.plateau_steps


def _flat_points(reward: Series, fluctuation: float) -> int:
    """Points at the end whose range stays under the fluctuation."""
    backwards = reward.values[::-1]
    spread = np.maximum.accumulate(backwards) - np.minimum.accumulate(backwards)
    return int(np.searchsorted(spread, fluctuation))


def _too_short(reward: Series, limits: Limits) -> tuple[Finding, ...]:
    """Not enough data, unless what there is clearly rises or falls."""
    growth = _growth(fit_line(reward.steps, reward.values), limits)
    rises = growth.lowest > 0 and growth.value > limits.plateau_growth
    falls = growth.highest < 0 and growth.value < -limits.plateau_growth
    if rises or falls:
        return ()
    return (
        Finding(
            code=Code.INSUFFICIENT_DATA,
            severity=Severity.WARN,
            metric=reward.name,
            first_step=int(reward.steps[0]),
            last_step=int(reward.steps[-1]),
            seen=f"no clear growth in {reward.span_steps} steps ({len(reward)} points), "
            f"but a plateau takes {limits.plateau_steps}",
            advice=f"go on to at least {limits.plateau_steps} steps before judging the reward; "
            "if it stays flat, calibrate the KL penalty (step 2 of the method)",
            source=SOURCE,
            figures=(("steps", float(reward.span_steps)), ("growth_per_plateau_window", growth.value)),
        ),
    )


def _flat(evidence: Evidence, reward: Series, points: int, growth: _Growth) -> Finding:
    flat = reward[len(reward) - points :]
    spread = float(flat.values.max() - flat.values.min())
    seen = f"{flat.span_steps} steps within {spread:.2g} of each other, growth {growth.value:+.2g}"
    return _without_growth(evidence, Code.REWARD_PLATEAU, flat, seen, Confidence.HIGH, growth)


def _stalled(evidence: Evidence, stretch: Series, growth: _Growth) -> Finding:
    spread = float(stretch.values.max() - stretch.values.min())
    seen = (
        f"{stretch.span_steps} steps whose growth per {evidence.limits.plateau_steps} steps lies between "
        f"{growth.lowest:+.2g} and {growth.highest:+.2g}; single steps scatter over {spread:.2g}"
    )
    return _without_growth(evidence, Code.REWARD_STALLED, stretch, seen, Confidence.MEDIUM, growth)


def _without_growth(
    evidence: Evidence, code: Code, stretch: Series, seen: str, confidence: Confidence, growth: _Growth
) -> Finding:
    level = final_level(stretch.values)
    done = _at_ceiling(evidence, level)
    return Finding(
        code=Code.REWARD_SATURATED if done else code,
        severity=Severity.INFO if done else Severity.WARN,
        metric=stretch.name,
        first_step=int(stretch.steps[0]),
        last_step=int(stretch.steps[-1]),
        seen=f"at {level:.4g}: {seen}",
        confidence=confidence,
        advice="the task is solved as far as its reward can tell; take harder data or stop here"
        if done
        else "calibrate the KL penalty (step 2 of the method) before touching the learning rate",
        direction=() if done else _kl_moves(evidence),
        source=SOURCE,
        figures=(("level", level), ("growth_per_plateau_window", growth.value)),
    )


def _at_ceiling(evidence: Evidence, level: float) -> bool:
    """Whether the mean is near the best that any answer of a batch gets."""
    best = evidence.recent_series(Quantity.REWARD_MAX)
    ceiling = float(np.max(best.values)) if best is not None else 0.0
    return ceiling > 0 and level >= evidence.limits.saturated_share * ceiling


def _kl_moves(evidence: Evidence) -> tuple[Move, ...]:
    """Which way the KL coefficient should go: S0 blames nine plateaus of ten on KL out of its band."""
    kl = evidence.recent(Quantity.REFERENCE_KL)
    if kl is None:
        return (Move(Way.SET, keys.KL_IN_REWARD, "true, to measure KL at all"),)
    limits = evidence.limits
    low, high = limits.kl_sequence_band if kl.unit is Unit.PER_SEQUENCE else limits.kl_actions
    level = float(np.mean(kl.series.since(int(kl.series.steps[-1]) - limits.kl_mean_steps + 1).values))
    if level > high:
        return (Move(Way.RAISE, keys.KL_COEF, "0.0005 to 0.01"),)
    if level < low:
        return (Move(Way.LOWER, keys.KL_COEF, "0.0005 to 0.01"),)
    return (Move(Way.CHECK, keys.ACTOR_LR, "KL is in its band"), Move(Way.CHECK, keys.ROLLOUT_N, "more exploration"))
