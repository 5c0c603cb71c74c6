"""What a series of numbers does, robustly: levels, noise, fitted growth, smoothing, episodes, periodicity.

All take values of shape (points,), finite unless said otherwise, and answer NaN where there is too little to tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweep.health.metric_table import FloatArray, MaskArray, StepArray

LEVEL_POINTS = 20
"""Most points whose median is called a level: quick enough for a guard, calm enough for batch noise. Ours."""

MIN_LEVEL_POINTS = 3
"""Fewest points of a level, so that one pulse cannot make it. Ours."""

MIN_BLOCKS = 5
"""Fewest levels whose scatter is measured. Ours."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A straight line through a series: slope a step with its standard error, and the correlation with time."""

    slope: float
    slope_error: float
    correlation: float


def level_points(points: int) -> int:
    """How many points make a level in a series of this length: a tenth, between 3 and 20, never more than a third."""
    wanted = min(max(points // 10, MIN_LEVEL_POINTS), LEVEL_POINTS)
    return max(1, min(wanted, points // 3)) if points else 0


def start_level(values: FloatArray) -> float:
    """Median of the first points."""
    return float(np.median(values[: level_points(len(values))])) if len(values) else math.nan


def final_level(values: FloatArray) -> float:
    """Median of the last points."""
    return float(np.median(values[-level_points(len(values)) :])) if len(values) else math.nan


def best_level(values: FloatArray) -> float:
    """Highest median of any such stretch of points."""
    width = level_points(len(values))
    if not width:
        return math.nan
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    return float(max(np.median(block, axis=1).max() for block in np.array_split(windows, len(windows) // 4096 + 1)))


def noise(values: FloatArray) -> float:
    """Standard deviation of the noise, from the median absolute second difference; a straight trend adds nothing."""
    if len(values) < 3:
        return math.nan
    return float(1.4826 * np.median(np.abs(np.diff(values, 2))) / math.sqrt(6))


def level_error(values: FloatArray) -> float:
    """Standard error of a level: from single points, or from how levels follow each other if that is more.

    The second sees autocorrelation, which the first does not.
    """
    width = level_points(len(values))
    if not width:
        return math.nan
    single = 1.25 * noise(values) / math.sqrt(width)
    whole = len(values) // width
    if whole < MIN_BLOCKS:
        return single
    levels = np.median(values[len(values) - whole * width :].reshape(whole, width), axis=1)
    return max(single, noise(levels))


def fit_line(steps: StepArray, values: FloatArray) -> Fit:
    """Least squares; the error grows with the autocorrelation at lag 1 of what the line leaves.

    Slope error: s / sqrt(sum of squared steps), times sqrt((1 + r) / (1 - r)) for a positive r.
    """
    if len(values) < 3:
        return Fit(math.nan, math.nan, math.nan)
    time = steps.astype(np.float64) - float(np.mean(steps))
    spread = float(time @ time)
    if spread == 0:
        return Fit(math.nan, math.nan, math.nan)
    centred = values - float(np.mean(values))
    slope = float(time @ centred) / spread
    left = centred - slope * time
    error = math.sqrt(float(left @ left) / (len(values) - 2) / spread)
    lag = min(max(autocorrelation(left), 0.0), 0.95)
    total = math.sqrt(float(centred @ centred) * spread)
    correlation = float(time @ centred) / total if total > 0 else 0.0
    return Fit(slope, error * math.sqrt((1 + lag) / (1 - lag)), correlation)


def autocorrelation(values: FloatArray) -> float:
    """Autocorrelation at lag 1; 0 for a constant series."""
    centred = values - float(np.mean(values)) if len(values) else values
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0


def smooth(values: FloatArray, weight: float) -> FloatArray:
    """Exponential moving average with bias correction, as experiment trackers draw it; not finite values are skipped.

    s_t = w s_(t-1) + (1 - w) x_t, divided by 1 - w^t.
    """
    out = np.empty(len(values))
    total = 0.0
    correction = 0.0
    for i, value in enumerate(values.tolist()):
        if math.isfinite(value):
            total = weight * total + (1 - weight) * value
            correction = weight * correction + (1 - weight)
        out[i] = total / correction if correction else math.nan
    return out


def episodes(mask: MaskArray) -> int:
    """Number of separate runs of True."""
    return int(np.count_nonzero(np.diff(np.concatenate(([False], mask)).astype(np.int8)) == 1))


def trailing_run(mask: MaskArray) -> int:
    """Length of the run of True that ends the mask."""
    false_at = np.flatnonzero(~mask)
    return len(mask) - 1 - int(false_at[-1]) if len(false_at) else len(mask)


def trailing_stretch(mask: MaskArray, share: float) -> int:
    """Length of the longest end of the mask that begins with True and is True in at least that share of its points."""
    backwards = mask[::-1]
    often = np.cumsum(backwards) >= share * np.arange(1, len(mask) + 1)
    ends = np.flatnonzero(often & backwards)
    return int(ends[-1]) + 1 if len(ends) else 0


@dataclass(frozen=True, slots=True)
class Periodicity:
    """The strongest cycle of a series: its length in points, share of the variance, and chance of being noise."""

    period_points: float
    share: float
    p_value: float


def periodicity(values: FloatArray, slowest_cycles: int = 4) -> Periodicity:
    """Fisher's test on the periodogram of the series less a cubic trend; slower cycles than that are trend.

    p = m (1 - g)^(m - 1) for the largest of m shares g, capped at 1. Where a slower cycle is stronger there is none:
    a step from one level to another has power at all of them, the most at the slowest.
    """
    points = len(values)
    if points < 8 * slowest_cycles:
        return Periodicity(math.nan, 0.0, 1.0)
    time = np.linspace(-1, 1, points)
    left = values - np.polynomial.polynomial.polyval(time, np.polynomial.polynomial.polyfit(time, values, 3))
    spectrum = np.abs(np.fft.rfft(left)) ** 2
    slow, power = spectrum[1:slowest_cycles], spectrum[slowest_cycles:]
    total = float(power.sum())
    peak = int(np.argmax(power))
    if not total > 0 or float(slow.max()) > float(power[peak]):
        return Periodicity(math.nan, 0.0, 1.0)
    share = float(power[peak]) / total
    chance = min(1.0, len(power) * (1 - share) ** (len(power) - 1))
    return Periodicity(points / (peak + slowest_cycles), share, chance)
