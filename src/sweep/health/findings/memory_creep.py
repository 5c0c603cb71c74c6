"""Memory that creeps up step by step, on GPU and host apart, and when it will meet the guard and the limit.

verl's `max_memory_*` are running maxima: one step up and then a flat line is no creep, so growth must be seen in most
parts of the run and in its last third. The guard acts on what is projected, never on the slope alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.limits import Limits
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import fit_line

SOURCE = "S1 section 7.3; verl#630, verl#429; METHOD section 8"


@dataclass(frozen=True, slots=True)
class Creep:
    """A steady growth: its slope, the level now, and steps until guard and limit (None: the total is unknown)."""

    gib_per_100_steps: float
    now_gib: float
    steps_to_guard: float | None
    steps_to_limit: float | None


def memory_creep(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding for GPU memory and one for host memory, each if it creeps."""
    facts = evidence.facts
    pairs = ((Quantity.GPU_RESERVED_GIB, facts.gpu_total_gib), (Quantity.HOST_USED_GIB, facts.host_total_gib))
    found = (_judge(evidence, quantity, total) for quantity, total in pairs)
    return tuple(f for f in found if f is not None)


def creep(series: Series, total_gib: float | None, limits: Limits) -> Creep | None:
    """The creep of a memory series; None if it is short, flat, falling, or one step up."""
    if len(series) < limits.creep_points:
        return None
    slope = fit_line(series.steps, series.values).slope
    if slope * 100 < limits.creep_gib_per_100_steps or not _spread_out(series, slope, limits.creep_blocks):
        return None
    now = float(np.max(series.values[-3:]))
    if total_gib is None:
        return Creep(slope * 100, now, None, None)
    room = total_gib - now
    return Creep(slope * 100, now, max(0.0, (room - limits.guard_free_gib) / slope), max(0.0, room / slope))


def _spread_out(series: Series, slope: float, blocks: int) -> bool:
    """Whether most parts end above where they began, the last third among them."""
    medians = np.array([float(np.median(part)) for part in np.array_split(series.values, blocks)])
    rises = np.diff(medians)
    even = float(medians[-1] - medians[0]) / (blocks - 1)
    last_third = series.since(int(series.steps[-1]) - series.span_steps // 3)
    goes_on = fit_line(last_third.steps, last_third.values).slope >= 0.3 * slope
    return bool(np.count_nonzero(rises > 0.1 * even) >= 0.6 * len(rises)) and goes_on


def _judge(evidence: Evidence, quantity: Quantity, total_gib: float | None) -> Finding | None:
    series = evidence.series(quantity)
    found = creep(series, total_gib, evidence.limits) if series is not None else None
    if series is None or found is None:
        return None
    soon = evidence.facts.save_interval_steps or evidence.limits.projection_steps
    act_now = found.steps_to_guard is not None and found.steps_to_guard < soon
    figures = [("slope_gb_per_100_steps", found.gib_per_100_steps), ("now_gib", found.now_gib)]
    when = ""
    if found.steps_to_guard is not None and found.steps_to_limit is not None:
        figures += [("steps_to_guard", found.steps_to_guard), ("steps_to_limit", found.steps_to_limit)]
        when = (
            f"; {evidence.limits.guard_free_gib:g} GiB free in about {found.steps_to_guard:.0f} steps, "
            f"none in {found.steps_to_limit:.0f}"
        )
    return Finding(
        code=Code.MEMORY_CREEP,
        severity=Severity.ERROR if act_now else Severity.WARN,
        metric=series.name,
        first_step=int(series.steps[0]),
        last_step=int(series.steps[-1]),
        seen=f"{found.now_gib:.3g} GiB and growing by {found.gib_per_100_steps:.2g} GiB per 100 steps{when}",
        confidence=Confidence.HIGH if len(series) >= 2 * evidence.limits.creep_points else Confidence.MEDIUM,
        advice=f"save a checkpoint {'now and stop' if act_now else 'and let it run on'}; {_remedy(quantity)}",
        direction=_direction(quantity),
        source=SOURCE,
        figures=tuple(figures),
    )


def _remedy(quantity: Quantity) -> str:
    if quantity is Quantity.GPU_RESERVED_GIB:
        return "check free_cache_engine and the vLLM version for a known leak"
    return "check the vLLM version for a known leak of host memory and count loader workers"


def _direction(quantity: Quantity) -> tuple[Move, ...]:
    if quantity is Quantity.GPU_RESERVED_GIB:
        return (Move(Way.SET, keys.ROLLOUT_FREE_CACHE, "true"),)
    return (Move(Way.LOWER, keys.DATALOADER_WORKERS),)
