"""`step_time`: seconds of training a step, robust against hiccups, with an error that respects autocorrelation.

`rollout_share`: how much of it is generation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from sweep.stats.estimate import UNKNOWN, Estimate

BLOCKS = 10
"""The error comes from the medians of this many consecutive blocks, each long against the autocorrelation. Ours:
the step times of real runs are correlated at 0.2-0.4 over one step and not visibly over ten."""

MIN_STEPS = 3
"""Fewer timed steps give no step time. Ours."""


def step_time(step_seconds: Sequence[float], warmup_steps: int) -> Estimate:
    """Median seconds a step after the warm-up, steps without a time left out."""
    return _step_time(tuple(step_seconds), warmup_steps)


@lru_cache(maxsize=1024)
def _step_time(step_seconds: tuple[float, ...], warmup_steps: int) -> Estimate:
    values = np.asarray(step_seconds[warmup_steps:], dtype=float)
    values = values[np.isfinite(values) & (values > 0)]
    if len(values) < MIN_STEPS:
        return UNKNOWN
    blocks = np.array_split(values, min(BLOCKS, len(values)))
    medians = np.array([np.median(block) for block in blocks])
    error = float(medians.std(ddof=1)) / math.sqrt(len(blocks))
    return Estimate(float(np.median(values)), error, len(blocks) - 1)


def rollout_share(gen_seconds: Sequence[float], step_seconds: Sequence[float]) -> float:
    """Generation's share of the time of the steps that logged both; NaN if none did."""
    pairs = [(g, s) for g, s in zip(gen_seconds, step_seconds, strict=True) if math.isfinite(g) and s > 0]
    total = sum(s for _, s in pairs)
    return sum(g for g, _ in pairs) / total if total > 0 else math.nan
