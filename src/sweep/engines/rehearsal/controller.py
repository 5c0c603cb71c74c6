"""`coefficients`, `settled_coefficient`: the KL coefficient that a simulated band controller arrives at."""

from __future__ import annotations

import math

from sweep.engines.rehearsal.knobs import DEFAULT_KNOBS, Knobs

KL_ANSWER = 0.6
"""Exponent by which KL falls with the coefficient. Ours."""

SMALLEST_COEF = 1e-9
"""A coefficient of zero acts like this one, so that logarithms exist."""

READINGS = 5
"""Readings that decide the settled coefficient: 500 steps at the default interval. Source: S0 section 2."""


def kl_nats(coef: float, lr: float) -> float:
    """KL per token that training settles at: 0.1 at verl's defaults, more with lr, less with the coefficient."""
    more = math.pow(lr / DEFAULT_KNOBS.lr, 0.8)
    return 0.1 * more * math.pow(DEFAULT_KNOBS.kl_coef / max(coef, SMALLEST_COEF), KL_ANSWER)


def coefficients(knobs: Knobs, readings: int) -> list[float]:
    """The coefficient during each interval: the configured one, then as the controller moved it, if one is on."""
    values = [knobs.kl_coef]
    for _ in range(readings - 1):
        values.append(_moved(knobs, values[-1]) if knobs.banded else values[-1])
    return values


def settled_coefficient(knobs: Knobs) -> float:
    """Geometric mean of the coefficient over a trial."""
    return math.exp(sum(math.log(max(c, SMALLEST_COEF)) for c in coefficients(knobs, READINGS)) / READINGS)


def _moved(knobs: Knobs, coef: float) -> float:
    kl = kl_nats(coef, knobs.lr)
    factor = knobs.band_raise if kl > knobs.band_high else knobs.band_lower if kl < knobs.band_low else 1.0
    return min(knobs.coef_max, max(knobs.coef_min, coef * factor)) if factor != 1.0 else coef
