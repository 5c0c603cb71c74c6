"""Training that cannot learn: advantages that are all zero, a learning rate of zero."""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import MaskArray, Series
from sweep.health.trend import final_level, level_points


def no_signal(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings about advantages and about the learning rate."""
    return (*_zero_advantage(evidence), *_zero_lr(evidence))


def _zero_advantage(evidence: Evidence) -> tuple[Finding, ...]:
    found = _without_advantage(evidence)
    if found is None:
        return ()
    series, zero = found
    last = zero[-max(level_points(len(zero)), min(3, len(zero))) :]
    if float(np.mean(last)) <= evidence.limits.zero_advantage_share or not zero[-1]:
        return ()
    nonzero = np.flatnonzero(~zero)
    first = int(nonzero[-1]) + 1 if len(nonzero) else 0
    reward = evidence.recent_series(Quantity.REWARD)
    level = f" at a reward of {final_level(reward.values):.3g}" if reward is not None else ""
    return (
        Finding(
            code=Code.ZERO_ADVANTAGE,
            severity=Severity.WARN,
            metric=series.name,
            first_step=int(series.steps[first]),
            last_step=int(series.steps[-1]),
            seen=f"no advantage differs from zero over the last {len(series) - first} points{level}",
            confidence=Confidence.HIGH if len(series) > 1 else Confidence.MEDIUM,
            advice="no learning signal, so a tiny gradient is expected: all samples of a group score alike, or "
            "rollout.n=1 with a group estimator; filter such groups, raise n or take harder prompts",
            direction=(Move(Way.RAISE, keys.ROLLOUT_N), Move(Way.CHECK, keys.ADV_ESTIMATOR)),
            source="Awesome-ML-SYS-Tutorial#106; METHOD section 6",
        ),
    )


def _without_advantage(evidence: Evidence) -> tuple[Series, MaskArray] | None:
    """A series and at which points it shows advantages of zero: from their extremes, or the spread in a group."""
    limit = evidence.limits.zero_advantage
    high, low = evidence.recent_series(Quantity.ADVANTAGE_MAX), evidence.recent_series(Quantity.ADVANTAGE_MIN)
    if high is not None and low is not None and len(high) == len(low):
        if evidence.rounded(high.name) or evidence.rounded(low.name):
            return None
        return high, (np.abs(high.values) <= limit) & (np.abs(low.values) <= limit)
    spread = evidence.recent_series(Quantity.REWARD_SPREAD)
    if spread is None or evidence.rounded(spread.name):
        return None
    return spread, np.abs(spread.values) <= limit


def _zero_lr(evidence: Evidence) -> tuple[Finding, ...]:
    """Zero at the last points; not where the log rounds, and not the first step of a warm-up."""
    lr = evidence.recent_series(Quantity.LR)
    if lr is None or evidence.rounded(lr.name) or len(lr) < evidence.limits.all_zero_points:
        return ()
    last = lr.values[-level_points(len(lr)) :]
    if last.any():
        return ()
    return (
        Finding(
            code=Code.LR_ZERO,
            severity=Severity.WARN,
            metric=lr.name,
            first_step=int(lr.steps[-len(last)]),
            last_step=int(lr.steps[-1]),
            seen=f"learning rate 0 at the last {len(last)} points",
            advice="the schedule has run out or was never switched on; a cosine over the trial's own steps ends at 0",
            direction=(Move(Way.CHECK, keys.TOTAL_STEPS), Move(Way.CHECK, keys.ACTOR_WARMUP_STEPS)),
            source="METHOD section 9; verl optimizer schedules",
        ),
    )
