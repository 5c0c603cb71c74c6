"""The critic: a loss that stays high, a critic that explains nothing or gets worse, advantages off zero.

A fresh critic starts badly; only what lasts is a finding. Its gradient norm has no band, it is compared with its own
start.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import MaskArray, Series
from sweep.health.trend import final_level, start_level, trailing_run

SOURCE = "S1 section 4; METHOD section 6"
REMEDIES = (
    Move(Way.RAISE, keys.CRITIC_LR, "say 1e-5, ten times the actor's"),
    Move(Way.RAISE, keys.CRITIC_WARMUP, "some tens of steps before the actor moves"),
)


def critic(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings about loss, explained variance, growth and advantages, in that order."""
    return (*_loss(evidence), *_explained(evidence), *_growth(evidence), *_advantages(evidence))


def _lasting(evidence: Evidence, series: Series | None, bad: MaskArray | None) -> Series | None:
    """The points at the end at which it is bad, if there are enough of them."""
    if series is None or bad is None:
        return None
    run = trailing_run(bad)
    return series[len(series) - run :] if run >= evidence.limits.critic_steps else None


def _loss(evidence: Evidence) -> tuple[Finding, ...]:
    loss, limit = evidence.recent_series(Quantity.VALUE_LOSS), evidence.limits.vf_loss
    high = _lasting(evidence, loss, loss.values > limit if loss is not None else None)
    if high is None:
        return ()
    return (
        Finding(
            code=Code.CRITIC_LOSS_HIGH,
            severity=Severity.WARN,
            metric=high.name,
            first_step=int(high.steps[0]),
            last_step=int(high.steps[-1]),
            seen=f"critic loss above {limit:g} for {len(high)} points, now {final_level(high.values):.3g}",
            confidence=Confidence.MEDIUM,
            advice="the loss scales with the square of the reward; for rewards between 0 and 1 it should come down. "
            "Let the critic learn faster or ahead of the actor",
            direction=REMEDIES,
            source=SOURCE,
            figures=(("level", final_level(high.values)),),
        ),
    )


def _explained(evidence: Evidence) -> tuple[Finding, ...]:
    explained, limit = evidence.recent_series(Quantity.EXPLAINED_VARIANCE), evidence.limits.explained_variance
    low = _lasting(evidence, explained, explained.values < limit if explained is not None else None)
    if low is None:
        return ()
    return (
        Finding(
            code=Code.CRITIC_UNINFORMATIVE,
            severity=Severity.WARN,
            metric=low.name,
            first_step=int(low.steps[0]),
            last_step=int(low.steps[-1]),
            seen=f"explained variance below {limit:g} for {len(low)} points, now {final_level(low.values):.3g}: "
            "a constant would predict returns better",
            confidence=Confidence.MEDIUM,
            advice="let the critic learn ahead of the actor; a lambda near 1 leans on it least",
            direction=(*REMEDIES, Move(Way.CHECK, keys.LAM)),
            source="verl metric_utils.py; METHOD section 6",
            figures=(("level", final_level(low.values)),),
        ),
    )


def _growth(evidence: Evidence) -> tuple[Finding, ...]:
    """Diverging: loss many times its start and high, or gradient norm many times its start with the loss grown too."""
    limits = evidence.limits
    norm, loss = evidence.series(Quantity.CRITIC_GRAD_NORM), evidence.series(Quantity.VALUE_LOSS)
    if loss is None or len(loss) < limits.critic_steps:
        return ()
    start, end = start_level(loss.values), final_level(loss.values)
    by_norm = norm is not None and len(norm) >= limits.critic_steps and end > 2 * start
    by_norm = by_norm and norm is not None and _times_start(norm) > limits.critic_growth
    if not by_norm and not (end > limits.vf_loss and _times_start(loss) > limits.critic_growth):
        return ()
    also = f", gradient norm {_times_start(norm):.3g} times its start" if norm is not None else ""
    return (
        Finding(
            code=Code.CRITIC_DIVERGING,
            severity=Severity.ERROR,
            metric=loss.name,
            first_step=int(loss.steps[int(np.argmax(loss.values > (start + end) / 2))]),
            last_step=int(loss.steps[-1]),
            seen=f"critic loss grew from {start:.3g} to {end:.3g}{also}",
            advice="lower the critic's learning rate",
            direction=(Move(Way.LOWER, keys.CRITIC_LR),),
            source="verl#5637; METHOD section 6",
            figures=(("start", start), ("end", end)),
        ),
    )


def _times_start(series: Series) -> float:
    """How many times its level at the start the level at the end is; infinite for a start of zero."""
    start, end = start_level(series.values), final_level(series.values)
    return end / start if start > 0 else float("inf")


def _advantages(evidence: Evidence) -> tuple[Finding, ...]:
    mean, limit = evidence.recent_series(Quantity.ADVANTAGE_MEAN), evidence.limits.advantage_offset
    off = _lasting(evidence, mean, np.abs(mean.values) > limit if mean is not None else None)
    if off is None:
        return ()
    return (
        Finding(
            code=Code.ADVANTAGE_OFFSET,
            severity=Severity.WARN,
            metric=off.name,
            first_step=int(off.steps[0]),
            last_step=int(off.steps[-1]),
            seen=f"mean advantage {final_level(off.values):+.3g} for {len(off)} points",
            confidence=Confidence.MEDIUM,
            advice="GAE advantages are whitened to mean 0 in verl; another estimator or a broken mask shifts them",
            direction=(Move(Way.CHECK, keys.ADV_ESTIMATOR),),
            source=SOURCE,
            figures=(("level", final_level(off.values)),),
        ),
    )
