"""How fast a trial goes and how long its stage may take: `Pace`, pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

RECENT_STEPS = 20
"""Steps whose median is taken for the pace: enough to pass over a slow first step, few enough to follow a change."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between the steps of one trial, and how long those before it took."""

    intervals: tuple[float, ...] = ()
    last_step_at: float | None = None
    trial_seconds: tuple[float, ...] = ()
    trial_began_at: float | None = None

    def trial_started(self, now: float) -> Pace:
        """A trial began."""
        return replace(self, intervals=(), last_step_at=None, trial_began_at=now)

    def stepped(self, now: float) -> Pace:
        """A step was logged."""
        if self.last_step_at is None:
            return replace(self, last_step_at=now)
        return replace(self, intervals=(*self.intervals, now - self.last_step_at)[-RECENT_STEPS:], last_step_at=now)

    def trial_ended(self, now: float) -> Pace:
        """The trial ended."""
        took = () if self.trial_began_at is None else (now - self.trial_began_at,)
        return replace(self, trial_seconds=(*self.trial_seconds, *took), trial_began_at=None)

    def seconds_left(self, steps_left: int, trials_left: int, trial_steps: int, at_once: int = 1) -> float | None:
        """Until the stage ends if it uses its whole budget with so many trials at once; None before a step was timed.

        Before a first trial has ended, a trial is taken to last its steps.
        """
        if not self.intervals and not self.trial_seconds:
            return None
        each_step = median(self.intervals) if self.intervals else 0.0
        each_trial = median(self.trial_seconds) if self.trial_seconds else trial_steps * each_step
        return steps_left * each_step + trials_left * each_trial / max(1, at_once)


def as_time(seconds: float | None) -> str:
    """45 s, 3 min, 1 h 20 min; a dash if unknown."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
