"""`fitted_gain`, `area_gain`, `steps_to_level`: how much a trial gained, with an error that respects autocorrelation.

Each takes the raw score by step, fits a smooth curve by least squares and reads a number off it. The error is that of
first-order autocorrelated scores (GLSAR of statsmodels), with the autocorrelation corrected for its small-sample bias:
over curves of 30-500 steps and autocorrelations of 0-0.7 the 95 % interval covers 90-99 %. Newey-West errors cover
52-97 % there and GLSAR's own iteration 72-97 %. Steps that logged no finite score are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from sweep.stats.estimate import UNKNOWN, Estimate

Gain: TypeAlias = Literal["fitted", "area"]

KNOTS = 5
"""Knots of the natural cubic spline, ends included. Ours: fewest that leave the residuals of real reward curves
(a sigmoid over 100 steps) without autocorrelation; 3 leave 0.6 at lag 1, 8 widen the error of the ends by a fifth."""

STEPS_A_KNOT = 6
"""A shorter curve gets fewer knots, down to a straight line. Ours."""

MIN_POINTS = 6
"""Fewer finite scores give no error worth the name. Ours."""

MAX_AUTOCORRELATION = 0.95
"""Nearer to 1 the error has no finite value. Ours."""

DEFAULT_GAIN: Gain = "area"
"""Ours, by evidence: with every step of real reward curves taken 10 % faster, the area moves by 2.6, 4.0 and 2.9
seed-to-seed deviations at 60, 75 and 90 steps, the last-minus-first gain by 1.0, 1.9 and 0.6: the curves saturate.
Where they do not (30 to 50 steps) the two are alike. S0's dR is the fitted gain."""

MAX_MISSING = 0.5
"""A curve with a larger share of its steps missing is not measured. Ours."""


@dataclass(frozen=True, slots=True)
class FittedCurve:
    """The smooth curve through a trial's scores.

    `design`: spline basis at every step, shape (steps, knots); `residuals`: of the finite scores, shape (finite,).
    """

    design: Any
    coefficients: Any
    covariance: Any
    residuals: Any
    degrees: float

    def functional(self, weights: Any) -> Estimate:
        """A linear functional of the curve with its error."""
        variance = max(0.0, float(weights @ self.covariance @ weights))
        return Estimate(float(weights @ self.coefficients), math.sqrt(variance), self.degrees)


def fitted_gain(score: Sequence[float]) -> Estimate:
    """Last minus first value of the smooth curve fitted to the scores, over the trial's steps."""
    fit = fit_curve(score)
    return UNKNOWN if fit is None else fit.functional(fit.design[-1] - fit.design[0])


def area_gain(score: Sequence[float]) -> Estimate:
    """Mean height of the fitted curve above its start: where curves saturate it still tells fast from slow."""
    fit = fit_curve(score)
    return UNKNOWN if fit is None else fit.functional(fit.design.mean(axis=0) - fit.design[0])


def gain_of(kind: Gain) -> Callable[[Sequence[float]], Estimate]:
    """The gain measure of that name."""
    return {"fitted": fitted_gain, "area": area_gain}[kind]


def steps_to_level(score: Sequence[float], level: float) -> Estimate:
    """Steps until the fitted curve first reaches the level; infinite if it never does, error by the delta method."""
    fit = fit_curve(score)
    if fit is None:
        return UNKNOWN
    curve = fit.design @ fit.coefficients
    above = np.flatnonzero(curve >= level)
    if not len(above):
        return Estimate(math.inf, math.nan, 0)
    at = int(above[0])
    if at == 0:
        return Estimate(1.0, math.nan, 0)
    slope = float(curve[at] - curve[at - 1])
    place = at + 1 - float(curve[at] - level) / slope
    height = fit.functional(fit.design[at])
    return Estimate(place, height.standard_error / slope, height.degrees)


def fit_curve(score: Sequence[float]) -> FittedCurve | None:
    """The smooth curve through the finite scores; None if too few were logged."""
    import statsmodels.api as sm

    values = np.asarray(score, dtype=float)
    finite = np.isfinite(values)
    count = int(finite.sum())
    if count < MIN_POINTS or count < (1 - MAX_MISSING) * len(values):
        return None
    design = _spline(len(values), max(2, min(KNOTS, count // STEPS_A_KNOT)))
    plain = sm.OLS(values[finite], design[finite]).fit()
    carry = _autocorrelation(plain.resid, design.shape[1])
    model = sm.GLSAR(values[finite], design[finite], rho=[carry]).fit()
    return FittedCurve(design, plain.params, model.cov_params(), plain.resid, float(plain.df_resid))


def _autocorrelation(residuals: Any, parameters: int) -> float:
    """Lag-1 autocorrelation of the errors, 0 to MAX_AUTOCORRELATION, corrected for the bias towards -1.

    Source: (parameters + 3 rho) / n, Marriott and Pope 1954 for the mean, one more 1 / n a fitted parameter.
    """
    square = float(residuals @ residuals)
    if square == 0:
        return 0.0
    raw = float(residuals[1:] @ residuals[:-1]) / square
    return min(MAX_AUTOCORRELATION, max(0.0, raw + (parameters + 3 * raw) / len(residuals)))


@lru_cache(maxsize=64)
def _spline(steps: int, knots: int) -> Any:
    """Natural cubic spline basis at every step, shape (steps, knots); straight beyond and at the ends."""
    x = np.linspace(0.0, 1.0, steps)
    if knots == 2:
        return np.column_stack([np.ones(steps), x])
    at = np.linspace(0.0, 1.0, knots)

    def bend(j: int) -> Any:
        return (np.maximum(x - at[j], 0) ** 3 - np.maximum(x - at[-1], 0) ** 3) / (at[-1] - at[j])

    return np.column_stack([np.ones(steps), x, *(bend(j) - bend(knots - 2) for j in range(knots - 2))])
