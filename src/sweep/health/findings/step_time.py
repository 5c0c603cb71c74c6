"""Steps that have become much slower than they were, and the likeliest reason the log itself shows."""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import final_level


def step_time(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding: the level at the end against the median of the first half, so that a slow rise counts."""
    seconds, limits = evidence.series(Quantity.STEP_SECONDS), evidence.limits
    if seconds is None or len(seconds) < limits.step_time_points:
        return ()
    before, now = float(np.median(seconds.values[: len(seconds) // 2])), final_level(seconds.values)
    if before <= 0 or now <= limits.step_time_jump * before:
        return ()
    slow = np.flatnonzero(seconds.values < (before + now) / 2)
    first = min(int(slow[-1]) + 1 if len(slow) else 0, len(seconds) - 1)
    longer = _responses_grew(evidence, int(seconds.steps[first]))
    return (
        Finding(
            code=Code.STEP_TIME_JUMP,
            severity=Severity.WARN,
            metric=seconds.name,
            first_step=int(seconds.steps[first]),
            last_step=int(seconds.steps[-1]),
            seen=f"a step takes {now:.3g} s where it took {before:.3g} s: {now / before:.1f} times as long"
            + ("; responses grew at the same time" if longer else ""),
            confidence=Confidence.HIGH,
            advice="longer responses take longer: treat the lengths, not the hardware"
            if longer
            else "compare the timing of generation and update before and after; then look at the machine",
            direction=(Move(Way.CHECK, keys.RESPONSE_LENGTH),) if longer else (),
            source="verl#1224",
            figures=(("before_seconds", before), ("now_seconds", now)),
        ),
    )


def _responses_grew(evidence: Evidence, since: int) -> bool:
    """Whether lengths or the share of cut responses rose about when steps slowed down."""
    return any(
        _grew(evidence.series(quantity), since) for quantity in (Quantity.LENGTH_MEAN, Quantity.LENGTH_CLIP_RATIO)
    )


def _grew(series: Series | None, since: int) -> bool:
    if series is None:
        return False
    split = int(np.searchsorted(series.steps, since))
    if not 0 < split < len(series):
        return False
    before, after = float(np.median(series.values[:split])), float(np.median(series.values[split:]))
    return after > max(1.5 * before, before + 0.2)
