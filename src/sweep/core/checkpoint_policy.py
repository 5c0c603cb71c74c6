"""Which checkpoints of a run are kept, which is the best, and from which one a run resumes. Pure.

Source: S0 section 4.3 (keep the last three; the best by reward, replaced only on a gain over 0.5 %). Ours: a checkpoint
that was not written to its end counts for nothing, the best one is never deleted, and the gain is relative to the size
of the best reward, so that it means the same for rewards below zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SAVE_STEPS = 1000
"""Steps between checkpoints of a long run. Source: S0 section 4.3."""

KEEP_LAST = 3
"""Source: S0 section 4.3 (`keep_last_n`)."""

BEST_GAIN = 0.005
"""Relative gain in reward over which the best checkpoint is replaced. Source: S0 section 4.3."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far: its step and the mean reward of the steps that led to it."""

    step: int
    reward: float

    def gain(self, reward: float) -> float:
        """How far the reward is above this one's, relative to its size; any rise from zero is an infinite gain."""
        rise = reward - self.reward
        return rise / abs(self.reward) if self.reward else math.copysign(math.inf, rise) if rise else 0.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What becomes of each checkpoint, by step, rising. `partial` ones are left alone and never resumed from."""

    keep: tuple[int, ...]
    delete: tuple[int, ...]
    partial: tuple[int, ...]
    resume_from: int | None


def better(best: Best | None, step: int, reward: float, gain: float = BEST_GAIN) -> Best | None:
    """The best checkpoint once this one is there: replaced only on a gain over `gain`. NaN never is the best."""
    if math.isnan(reward):
        return best
    return Best(step, reward) if best is None or best.gain(reward) > gain else best


def retention(complete: Mapping[int, bool], best_step: int | None, keep_last: int = KEEP_LAST) -> Retention:
    """What to do with checkpoints of which it is known whether each is complete.

    The last `keep_last` complete ones and the best are kept; older ones go only because newer complete ones exist.
    """
    whole = sorted(step for step, done in complete.items() if done)
    last = whole[-keep_last:] if keep_last > 0 else []
    kept = sorted({*last, *whole[-1:], *(s for s in whole if s == best_step)})
    return Retention(
        keep=tuple(kept),
        delete=tuple(s for s in whole if s not in kept),
        partial=tuple(sorted(step for step, done in complete.items() if not done)),
        resume_from=whole[-1] if whole else None,
    )
