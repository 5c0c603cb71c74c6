"""Objectives by import path: `mean_gain` has no time in it, `rollout_rate` no learning."""

from __future__ import annotations

import math
from statistics import fmean, median

from sweep.core.outcome import Finished
from sweep.core.stage import Stage
from sweep.core.winner import Score

START_STEPS = 10


def mean_gain(stage: Stage, finished: Finished) -> Score:
    """Mean score above the start that the surface gives every run (known to a campaign from all its runs)."""
    values = [v for v in finished.curve.score if math.isfinite(v)]
    return Score(fmean(values) - 0.11, 0.0)


def gain_per_second(stage: Stage, finished: Finished) -> Score:
    """The same over the median step time."""
    return Score(mean_gain(stage, finished).value / median(finished.curve.step_seconds[5:]), 0.0)


def rollout_rate(stage: Stage, finished: Finished) -> Score:
    """Tokens a second of rollout, median over the steps."""
    return Score(median(finished.curve.rollout_tokens_per_s[5:]), 0.0)
