"""How fast a campaign goes and how long it may take: `Pace`, pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

RECENT_STEPS = 20
"""Steps whose median is taken for the pace: enough to pass over a slow first step, few enough to follow a change."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between the steps of the running trial, and what is known of trials before it."""

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

    def seconds_left(self, steps_left: int, trials_left: int) -> float | None:
        """Until the stage ends if it uses its whole budget; None before anything was measured."""
        if not self.intervals and not self.trial_seconds:
            return None
        of_trial = steps_left * median(self.intervals) if self.intervals else 0.0
        each = median(self.trial_seconds) if self.trial_seconds else 0.0
        return of_trial + trials_left * each


def as_time(seconds: float | None) -> str:
    """45 s, 3 min, 1 h 20 min; a dash if unknown."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
