"""`Estimate`, `Interval`, `Spread`: measured numbers that carry their error. An unknown number is NaN, never None."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard error and the degrees of freedom behind that error (0: the error is a guess)."""

    value: float
    standard_error: float
    degrees: float

    @property
    def known(self) -> bool:
        """Whether the value is a finite number."""
        return math.isfinite(self.value)

    @property
    def relative_error(self) -> float:
        """Standard error as a share of the value's size; NaN for an unknown or a zero value."""
        return abs(self.standard_error / self.value) if self.known and self.value != 0 else math.nan


UNKNOWN = Estimate(math.nan, math.nan, 0)
"""No estimate: too few or no finite observations."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its confidence interval; NaN with a `reason` if there is none.

    `standard_error` is that of the ratio's natural logarithm if `logarithmic`, else of the ratio itself. `degrees` 0
    means that the seed-to-seed spread was assumed and not measured: good enough to print, never to decide.
    """

    value: float
    low: float
    high: float
    standard_error: float
    degrees: float
    logarithmic: bool = True
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether the value is a finite number."""
        return math.isfinite(self.value)

    @property
    def statistic(self) -> float:
        """Distance from a ratio of 1 in standard errors; NaN if unknown."""
        if not self.known or not self.standard_error > 0:
            return math.nan
        return (math.log(self.value) if self.logarithmic else self.value - 1.0) / self.standard_error

    def at(self, level: float) -> tuple[float, float]:
        """The two-sided interval at that confidence level, 0.95 for instance."""
        reach = t_quantile(0.5 + level / 2, self.degrees or ASSUMED_DEGREES) * self.standard_error
        if self.logarithmic:
            return self.value * math.exp(-reach), self.value * math.exp(min(reach, MAX_EXPONENT))
        return self.value - reach, self.value + reach


ASSUMED_DEGREES = 3
"""Degrees given to an assumed spread, so that its interval is wide. Ours."""

MAX_EXPONENT = 700.0
"""e to a larger power is no float."""


def interval(value: float, standard_error: float, degrees: float, *, logarithmic: bool, level: float) -> Interval:
    """The interval of an estimated ratio at that confidence level."""
    bare = Interval(value, value, value, standard_error, degrees, logarithmic)
    low, high = bare.at(level)
    return Interval(value, low, high, standard_error, degrees, logarithmic)


def no_interval(reason: str) -> Interval:
    """The interval that does not exist, and why."""
    return Interval(math.nan, math.nan, math.nan, math.nan, 0, reason=reason)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seed-to-seed variance of one run's log efficiency that is left after pairing by seed, with its degrees."""

    variance: float
    degrees: float


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t; of the normal distribution for infinite degrees."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(probability) if math.isinf(degrees) else stdtrit(degrees, probability))


def t_two_sided(statistic: float, degrees: float) -> float:
    """Two-sided p-value of a t statistic."""
    from scipy.special import ndtr, stdtr

    size = -abs(statistic)
    return 2 * float(ndtr(size) if math.isinf(degrees) else stdtr(degrees, size))
