"""Made curves with a known gain: `made_curve`, `autocorrelated`."""

from __future__ import annotations

import math

import numpy as np

from sweep.core.curve import Curve


def autocorrelated(rng: np.random.Generator, steps: int, carry: float) -> np.ndarray:
    """Standard normal noise with that lag-1 autocorrelation, shape (steps,)."""
    white = rng.normal(size=steps) * math.sqrt(1 - carry**2)
    values = np.empty(steps)
    values[0] = rng.normal()
    for i in range(1, steps):
        values[i] = carry * values[i - 1] + white[i]
    return values


def made_curve(
    seed: int, *, gain: float = 0.4, seconds: float = 1.0, steps: int = 60, noise: float = 0.01, start: float = 0.1
) -> Curve:
    """A straight curve from `start` up by `gain`, its scores and step times with noise."""
    rng = np.random.default_rng(seed)
    line = start + gain * np.linspace(0, 1, steps)
    return Curve(
        steps=tuple(range(1, steps + 1)),
        score=tuple((line + noise * rng.normal(size=steps)).tolist()),
        step_seconds=tuple((seconds * np.exp(0.05 * rng.normal(size=steps))).tolist()),
    )
