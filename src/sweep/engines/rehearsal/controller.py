"""`coefficients`, `settled_coefficient`: the KL coefficient that a simulated band controller arrives at."""

from __future__ import annotations

import math

from sweep.core.kl_band import next_coefficient
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
        kl = kl_nats(values[-1], knobs.lr)
        values.append(values[-1] if knobs.band is None else next_coefficient(values[-1], kl, knobs.band))
    return values


def settled_coefficient(knobs: Knobs) -> float:
    """Geometric mean of the coefficient over a trial."""
    return math.exp(sum(math.log(max(c, SMALLEST_COEF)) for c in coefficients(knobs, READINGS)) / READINGS)
