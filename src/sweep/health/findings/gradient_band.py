"""The actor's gradient norm against its band: explosion, spikes, elevated, low, vanishing.

The band is the actor's alone: a critic's norm of a thousand at the start is normal. The norm is taken before
clipping, so clipping does not lower it. Raw values are judged; smoothing would hide spikes of a few steps.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.findings.reward_loss import fell_below_start
from sweep.health.limits import Limits
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import episodes, trailing_stretch

SOURCE = "S0 section 1.1; METHOD sections 6 and 9"
CALMER = (Move(Way.LOWER, keys.ACTOR_LR), Move(Way.LOWER, keys.ACTOR_CLIP_GRAD, "1.0 to 0.5"))


def gradient_band(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings about peaks first, then one about the level."""
    norm = evidence.recent_series(Quantity.GRAD_NORM)
    if norm is None:
        return ()
    peaks = _peaks(evidence, norm)
    return (*peaks, *_level(evidence, norm, peaks))


def _peaks(evidence: Evidence, norm: Series) -> tuple[Finding, ...]:
    """Explosion if the norm is often above the limit and has not come back, a spike if it was so now and then."""
    limits = evidence.limits
    over = norm.values > limits.grad_explosion
    count = int(np.count_nonzero(over))
    if not count:
        return ()
    share, bursts = count / len(norm), episodes(over)
    lasting = bool(over[-1]) or bursts >= limits.grad_often_episodes
    if count > 1 and share >= limits.grad_often and lasting:
        return (_explosion(evidence, norm, over, share),)
    steps = norm.steps[over]
    return (
        Finding(
            code=Code.GRAD_SPIKE,
            severity=Severity.WARN,
            metric=norm.name,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            seen=f"{count} of {len(norm)} points above {limits.grad_explosion:g} in {bursts} episode(s), "
            f"highest {float(norm.values.max()):.4g}",
            advice="watch the reward after each spike; if it does not come back, clip harder",
            direction=(CALMER[1],),
            source="trl#101; METHOD section 6",
            figures=(("share", share), ("highest", float(norm.values.max()))),
        ),
    )


def _explosion(evidence: Evidence, norm: Series, over: np.ndarray, share: float) -> Finding:
    steps = norm.steps[over]
    lost = fell_below_start(evidence)
    enough = len(norm) >= evidence.limits.plateau_min_points
    return Finding(
        code=Code.GRAD_EXPLOSION,
        severity=Severity.CRITICAL if lost or (share >= 0.5 and enough) else Severity.ERROR,
        metric=norm.name,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        seen=f"{share:.0%} of {len(norm)} points above {evidence.limits.grad_explosion:g}, "
        f"highest {float(norm.values.max()):.4g}" + ("; the reward fell below its start" if lost else ""),
        confidence=Confidence.HIGH if enough else Confidence.MEDIUM,
        advice="lower the learning rate or clip harder; the norm shown is the one before clipping",
        direction=CALMER,
        source=SOURCE,
        figures=(("share", share), ("highest", float(norm.values.max()))),
    )


def _level(evidence: Evidence, norm: Series, peaks: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Vanishing if nearly all points are tiny for long, up to the last, else low or elevated by the median."""
    limits = evidence.limits
    low, high = limits.grad_band
    tiny = _tiny(norm, limits)
    if tiny is not None and not (evidence.rounded(norm.name) and not tiny.values.any()):
        return (_vanishing(tiny, limits),)
    median = float(np.median(norm.values))
    if low <= median <= high or (peaks and peaks[0].code is Code.GRAD_EXPLOSION):
        return ()
    code = Code.GRAD_ELEVATED if median > high else Code.GRAD_LOW
    return (
        Finding(
            code=code,
            severity=Severity.INFO,
            metric=norm.name,
            first_step=int(norm.steps[0]),
            last_step=int(norm.steps[-1]),
            seen=f"median gradient norm {median:.3g}, band {low:g} to {high:g}",
            confidence=Confidence.MEDIUM,
            advice="elevated, but no error up to 10; small models live here"
            if code is Code.GRAD_ELEVATED
            else "low, but it still learns; judge it with the reward",
            source=SOURCE,
            figures=(("median", median),),
        ),
    )


def _tiny(norm: Series, limits: Limits) -> Series | None:
    """The stretch up to the last point in which nearly all norms are tiny, if it is long and not over."""
    under = norm.values < limits.grad_vanishing
    points = trailing_stretch(under, limits.grad_vanishing_share)
    lasting = float(np.mean(under[-limits.grad_vanishing_steps :])) >= limits.grad_vanishing_share
    return norm[len(norm) - points :] if points >= limits.grad_vanishing_steps and lasting else None


def _vanishing(tiny: Series, limits: Limits) -> Finding:
    under = int(np.count_nonzero(tiny.values < limits.grad_vanishing))
    return Finding(
        code=Code.GRAD_VANISHING,
        severity=Severity.WARN,
        metric=tiny.name,
        first_step=int(tiny.steps[0]),
        last_step=int(tiny.steps[-1]),
        seen=f"{under} of the last {len(tiny)} points under {limits.grad_vanishing:g}, "
        f"median {float(np.median(tiny.values)):.2g}",
        advice="no update reaches the weights: look at advantages and loss masks first, then at the learning rate",
        direction=(Move(Way.CHECK, keys.ADV_ESTIMATOR), Move(Way.RAISE, keys.ACTOR_LR)),
        source=SOURCE,
        figures=(("share", under / len(tiny)), ("median", float(np.median(tiny.values)))),
    )
