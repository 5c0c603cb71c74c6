"""`reward_noise`, `roughness`, `hidden_oscillation`, `gradient_noise_scale`: what a curve says about its own noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.stats.estimate import UNKNOWN, Estimate
from sweep.stats.gain import ROUNDING_SHARE, fit_curve, fitted_gain

NOISY_SHARE = 0.10
"""A step's noise above this share of the trial's gain makes a task noisy. Ours: 0/1 scores of mathematics at batch 512
and +0.1 gained in a trial give about 0.2, graded scores of summaries 0.03; this lies between them."""

LOW_NOISE_LAM = 0.99
"""lam for tasks with little reward noise. Source: S0 section 2.4 (summaries)."""

HIGH_NOISE_LAM = 0.95
"""lam for tasks with much reward noise. Source: S0 section 2.4 (mathematics)."""

OSCILLATION_LEVEL = 0.01
"""A period is reported if noise alone would show one as strong in fewer than this share of curves."""

MIN_STEPS_FOR_PERIOD = 32
"""A shorter curve is not searched for a period. Ours."""


@dataclass(frozen=True, slots=True)
class RewardNoise:
    """Noise of one step's score as a share of the trial's gain, its class, and the lam that S0 gives that class."""

    share: Estimate
    noisy: bool
    lam: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    """The strongest period in the raw scores around their trend: length, amplitude in score, chance of it by noise."""

    period_steps: float
    amplitude: float
    p_value: float

    @property
    def found(self) -> bool:
        """Whether it is stronger than noise explains."""
        return self.p_value < OSCILLATION_LEVEL


NO_OSCILLATION = Oscillation(math.nan, 0.0, 1.0)
"""Nothing was found, or the curve is too short to tell."""


def reward_noise(score: Sequence[float], *, noisy_share: float = NOISY_SHARE) -> RewardNoise | None:
    """The noise class of a trial; None if too little was logged. A trial that gained nothing is noise alone: noisy.

    Estimator: standard deviation of the scores around their fitted curve over the gain of that curve. A shift or a
    scale of the reward does not move it; a larger batch lowers it, as it lowers the noise that the training sees.
    """
    share = roughness(score)
    if math.isnan(share.value):
        return None
    noisy = share.value > noisy_share
    return RewardNoise(share, noisy, HIGH_NOISE_LAM if noisy else LOW_NOISE_LAM)


def roughness(score: Sequence[float]) -> Estimate:
    """Standard deviation of the scores around their fitted curve, as a share of its gain; infinite without a gain."""
    rest = _residuals(score)
    gain = fitted_gain(score)
    if rest is None or not gain.known:
        return UNKNOWN
    degrees = gain.degrees
    deviation = math.sqrt(float(rest @ rest) / degrees)
    if gain.value <= 0:
        return Estimate(math.inf if deviation > 0 else 0.0, math.nan, degrees)
    value = deviation / gain.value
    return Estimate(value, value * math.hypot(1 / math.sqrt(2 * degrees), gain.relative_error), degrees)


def hidden_oscillation(score: Sequence[float]) -> Oscillation:
    """The strongest period left when trend and first-order autocorrelation are taken out (Fisher's g test, 1929).

    Smoothing and averages hide it; the raw series does not. Source: METHOD section 6; the estimator is ours.
    """
    rest = _residuals(score)
    if rest is None or len(rest) < MIN_STEPS_FOR_PERIOD or float(rest @ rest) == 0:
        return NO_OSCILLATION
    carry = float(rest[1:] @ rest[:-1]) / float(rest @ rest)
    white = rest[1:] - max(0.0, carry) * rest[:-1]
    power = np.abs(np.fft.rfft(white - white.mean()))[1 : (len(white) - 1) // 2 + 1] ** 2
    at = int(np.argmax(power))
    own = np.abs(np.fft.rfft(rest[1:]))[at + 1]
    return Oscillation(
        period_steps=len(white) / (at + 1),
        amplitude=2 * float(own) / len(white),
        p_value=_fisher_p(float(power[at] / power.sum()), len(power)),
    )


def gradient_noise_scale(
    small_norms: Sequence[float], large_norms: Sequence[float], *, small_batch: float, large_batch: float
) -> Estimate:
    """Batch size at which gradient noise equals the gradient, in the unit of the batches; NaN if norms cannot tell.

    From mean squared norms at two batch sizes: |G|^2 and tr(S) solve E|G_B|^2 = |G|^2 + tr(S) / B, and the scale is
    tr(S) / |G|^2. Much smaller mini-batches waste nothing, much larger ones gain nothing: a cross-check beside eta.
    verl logs one norm a step, the mean over its mini-batches, before clipping; the two runs follow different policies.

    Source: McCandlish et al. 2018, appendix A.1.
    """
    small, large = _mean_square(small_norms), _mean_square(large_norms)
    if not small.known or not large.known or not 0 < small_batch < large_batch:
        return UNKNOWN
    signal = (large_batch * large.value - small_batch * small.value) / (large_batch - small_batch)
    noise = (small.value - large.value) / (1 / small_batch - 1 / large_batch)
    if signal <= 0 or noise <= 0:
        return UNKNOWN
    scale = noise / signal
    by_small = scale * (1 / (small.value - large.value) + small_batch / (large_batch - small_batch) / signal)
    by_large = scale * (1 / (small.value - large.value) + large_batch / (large_batch - small_batch) / signal)
    error = math.hypot(by_small * small.standard_error, by_large * large.standard_error)
    return Estimate(scale, error, min(small.degrees, large.degrees))


def _residuals(score: Sequence[float]) -> Any:
    """The finite scores minus their fitted curve, nothing where that is rounding; None if too little was logged."""
    fit = fit_curve(score)
    if fit is None:
        return None
    size = max(abs(v) for v in score if math.isfinite(v))
    rounding = float(np.abs(fit.residuals).max()) <= ROUNDING_SHARE * size
    return np.zeros_like(fit.residuals) if rounding else fit.residuals


def _mean_square(norms: Sequence[float]) -> Estimate:
    """Mean of the squared norms; its error from blocks that are long against the autocorrelation."""
    squares = np.asarray(norms, dtype=float) ** 2
    squares = squares[np.isfinite(squares)]
    if len(squares) < MIN_STEPS_FOR_PERIOD:
        return UNKNOWN
    means = np.array([block.mean() for block in np.array_split(squares, 8)])
    return Estimate(float(squares.mean()), float(means.std(ddof=1)) / math.sqrt(8), 7)


def _fisher_p(share: float, count: int) -> float:
    """Chance that the largest of `count` periodogram ordinates of white noise has this share of the total."""
    terms = (
        (-1) ** (j - 1)
        * math.exp(
            math.lgamma(count + 1)
            - math.lgamma(j + 1)
            - math.lgamma(count - j + 1)
            + (count - 1) * math.log(1 - j * share)
        )
        for j in range(1, min(count, math.ceil(1 / share) - 1) + 1)
        if j * share < 1
    )
    return min(1.0, max(0.0, math.fsum(terms)))
