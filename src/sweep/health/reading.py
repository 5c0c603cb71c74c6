"""`readings`: the three metrics of the screen in one line each, for people: level, band, and what to call it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Finding
from sweep.health.findings.kl_band import band
from sweep.health.metric_names import Quantity, find
from sweep.health.trend import final_level, smooth

HEALTHY = "healthy"
BELOW = "below its band"
ABOVE = "above its band"
NOT_LOGGED = "not logged"
NOT_FINITE = "not finite"

STATES: Mapping[Quantity, frozenset[Code]] = {
    Quantity.REWARD: frozenset(
        {
            Code.REWARD_ALL_ZERO,
            Code.REWARD_DROP,
            Code.REWARD_PLATEAU,
            Code.REWARD_STALLED,
            Code.REWARD_SATURATED,
            Code.REWARD_CONSTANT,
            Code.INSUFFICIENT_DATA,
        }
    ),
    Quantity.REFERENCE_KL: frozenset(
        {Code.KL_EXPLOSION, Code.KL_NEGATIVE, Code.KL_SPIKE, Code.KL_HIGH, Code.KL_TOO_LOW}
    ),
    Quantity.GRAD_NORM: frozenset(
        {Code.GRAD_EXPLOSION, Code.GRAD_SPIKE, Code.GRAD_VANISHING, Code.GRAD_LOW, Code.GRAD_ELEVATED}
    ),
}
"""Quantity of the screen to the codes that describe its state."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric of the screen; numbers are NaN where nothing sound was logged, `band` is None for the reward."""

    quantity: Quantity
    metric: str
    unit: str
    level: float
    smoothed: float
    band: tuple[float, float] | None
    state: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, None for NaN."""
        return {
            "quantity": self.quantity.value,
            "metric": self.metric,
            "unit": self.unit,
            "level": self.level if math.isfinite(self.level) else None,
            "smoothed": self.smoothed if math.isfinite(self.smoothed) else None,
            "band": list(self.band) if self.band else None,
            "state": self.state,
        }


def readings(evidence: Evidence, findings: Iterable[Finding]) -> tuple[Reading, ...]:
    """A reading each of reward, KL to the reference and gradient norm over the window."""
    told = tuple(findings)
    return tuple(_reading(evidence, quantity, told) for quantity in STATES)


def band_of(evidence: Evidence, quantity: Quantity) -> tuple[float, float] | None:
    """The healthy band of the quantity in the unit in which this run logged it."""
    found = find(evidence.table, quantity, evidence.facts.units)
    if quantity is Quantity.GRAD_NORM:
        return evidence.limits.grad_band
    return band(evidence.limits, found.unit) if quantity is Quantity.REFERENCE_KL and found else None


def _reading(evidence: Evidence, quantity: Quantity, findings: tuple[Finding, ...]) -> Reading:
    logged = find(evidence.window, quantity, evidence.facts.units)
    if logged is None:
        return Reading(quantity, "", "", math.nan, math.nan, band_of(evidence, quantity), NOT_LOGGED)
    broken = logged.series.first_bad_step is not None and not logged.series.recovered
    values = logged.series.sound().values
    states = [f.code.name for f in findings if f.code in STATES[quantity]]
    level = math.nan if broken else final_level(values)
    return Reading(
        quantity,
        logged.name,
        logged.unit.value,
        level,
        math.nan if broken or not len(values) else float(smooth(values, evidence.limits.smoothing)[-1]),
        band_of(evidence, quantity),
        NOT_FINITE if broken else (states[0] if states else _beside_band(level, band_of(evidence, quantity))),
    )


def _beside_band(level: float, band: tuple[float, float] | None) -> str:
    """Where a level without a finding lies: it may be off its band and too short to say more."""
    if band is None or band[0] <= level <= band[1]:
        return HEALTHY
    return BELOW if level < band[0] else ABOVE
