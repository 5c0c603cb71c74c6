"""`RunningTrial`: what the trainer knows of the trial it is in the middle of, and whom it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.engines.mailbox import Mailbox, plain_numbers
from sweep.engines.verl.plugins.guards import STOP_RULES, StopRule, stop_reason


class RunningTrial:
    """Collects the metrics of one trial, reports each step and says when to stop."""

    def __init__(self, trial_id: str, mailbox: Mailbox, rules: Sequence[StopRule] = ()) -> None:
        self.id = trial_id
        self.last_step = 0
        self.stopped_by = ""
        self._mailbox = mailbox
        self._rules = rules or STOP_RULES
        self._rows: list[dict[str, float]] = []

    def observe(self, step: int, metrics: Mapping[str, Any]) -> str:
        """Takes note of a finished step; returns why the trial shall stop after it, or the empty string."""
        numbers = plain_numbers(metrics)
        self._rows.append(numbers)
        self.last_step = step
        requested = self._mailbox.report_step(self.id, step, numbers)
        self.stopped_by = requested or stop_reason(self._rows, self._rules)
        return self.stopped_by
