"""The critic: a loss that stays high, a critic that explains nothing or gets worse, advantages off zero.

A fresh critic starts badly; only what lasts is a finding. Its gradient norm has no band, it is compared with its own
start.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health import knobs
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import MaskArray, Series
from sweep.health.trend import final_level, start_level, trailing_run

SOURCE = "S1 section 4; METHOD section 6"
REMEDIES = (
    Move(Way.RAISE, knobs.CRITIC_LR, "say 1e-5, ten times the actor's"),
    Move(Way.RAISE, knobs.CRITIC_WARMUP, "some tens of steps before the actor moves"),
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
    """Diverging: gradient norm many times its start while the loss has grown as well."""
    norm, loss = evidence.series(Quantity.CRITIC_GRAD_NORM), evidence.series(Quantity.VALUE_LOSS)
    if norm is None or loss is None or len(norm) < evidence.limits.critic_steps:
        return ()
    start, end = start_level(norm.values), final_level(norm.values)
    worse = final_level(loss.values) > 2 * start_level(loss.values)
    if not worse or not end > evidence.limits.critic_growth * start:
        return ()
    return (
        Finding(
            code=Code.CRITIC_DIVERGING,
            severity=Severity.ERROR,
            metric=norm.name,
            first_step=int(norm.steps[int(np.argmax(norm.values > (start + end) / 2))]),
            last_step=int(norm.steps[-1]),
            seen=f"critic gradient norm from {start:.3g} to {end:.3g} while its loss grew to "
            f"{final_level(loss.values):.3g}",
            advice="lower the critic's learning rate",
            direction=(Move(Way.LOWER, knobs.CRITIC_LR),),
            source="verl#5637; METHOD section 6",
            figures=(("start", start), ("end", end)),
        ),
    )


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
            direction=(Move(Way.CHECK, knobs.ADV_ESTIMATOR),),
            source=SOURCE,
            figures=(("level", final_level(off.values)),),
        ),
    )
