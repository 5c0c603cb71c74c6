"""Every error that a user can meet: one root and a child for each exit code or port.

A trial that dies is not an error but an outcome (`sweep.core.outcome`). Messages are lower case without a
full stop and say what was asked, what was found and what would work.
"""

from __future__ import annotations


class SweepError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class ConfigError(SweepError):
    """The request cannot be carried out as written; nothing was started."""

    exit_code = 2


class StageHalted(SweepError):
    """A stage's rule ended the stage without a winner."""

    exit_code = 3

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} halted: {reason}")
        self.stage = stage
        self.reason = reason


class BudgetSpent(SweepError):
    """The campaign's GPU-hours are gone; the same command with more of them goes on."""

    exit_code = 5

    def __init__(self, spent: float, limit: float, needed: float) -> None:
        why = f"and another trial takes about {needed:.3g}" if needed else "and nothing is left"
        super().__init__(f"budget.gpu_hours={limit:g} ends the campaign: {spent:.3g} are spent {why}")
        self.spent, self.limit = spent, limit


class StoreError(SweepError):
    """The trial storage cannot be opened, read or written."""

    exit_code = 2


class ViewError(SweepError):
    """A file for people cannot be written; the storage has everything that it would say."""


class EngineError(SweepError):
    """A runtime cannot be started or reached; the trials it served are outcomes, not errors."""
