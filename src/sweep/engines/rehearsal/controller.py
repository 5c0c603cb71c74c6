"""`coefficients`, `settled_coefficient`: the KL coefficient that a simulated band controller arrives at."""

from __future__ import annotations

import math

from sweep.engines.rehearsal.knobs import Knobs

READINGS = 5
"""Readings that decide the settled coefficient: 500 steps at the default interval. Source: S0 section 2."""


def kl_nats(coef: float, lr: float) -> float:
    """KL per token that training settles at: 0.1 at the defaults, more with lr, less with the coefficient."""
    return 0.1 * math.pow(lr / 1e-6, 0.8) * math.pow(0.001 / max(coef, 1e-9), 0.6)


def coefficients(knobs: Knobs, readings: int) -> list[float]:
    """The coefficient during each interval: the configured one, then as the controller moved it, if one is on."""
    values = [knobs.kl_coef]
    for _ in range(readings - 1):
        values.append(_moved(knobs, values[-1]) if knobs.banded else values[-1])
    return values


def settled_coefficient(knobs: Knobs) -> float:
    """Geometric mean of the coefficient over a trial."""
    return math.exp(sum(math.log(max(c, 1e-9)) for c in coefficients(knobs, READINGS)) / READINGS)


def _moved(knobs: Knobs, coef: float) -> float:
    kl = kl_nats(coef, knobs.lr)
    factor = knobs.band_raise if kl > knobs.band_high else knobs.band_lower if kl < knobs.band_low else 1.0
    return min(knobs.coef_max, max(knobs.coef_min, coef * factor)) if factor != 1.0 else coef
