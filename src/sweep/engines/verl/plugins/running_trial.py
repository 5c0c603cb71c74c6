"""`RunningTrial`: what the trainer knows of the trial it is in the middle of, and whom it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.engines.mailbox import Mailbox, plain_numbers
from sweep.health.stopping import Guard


class RunningTrial:
    """Collects the metrics of one trial, reports each step and says when to stop."""

    def __init__(self, trial_id: str, mailbox: Mailbox) -> None:
        self.id = trial_id
        self.last_step = 0
        self.stopped_by = ""
        self._mailbox = mailbox
        self._guard = Guard()

    def guard_by(self, guard: Guard) -> None:
        """The trial is about to train under this guard."""
        self._guard = guard

    def observe(self, step: int, metrics: Mapping[str, Any]) -> str:
        """Takes note of a finished step; returns why the trial shall stop after it, or the empty string."""
        numbers = plain_numbers(metrics)
        self.last_step = step
        requested = self._mailbox.report_step(self.id, step, numbers)
        self.stopped_by = requested or self._guard.observe(step, numbers)
        return self.stopped_by
