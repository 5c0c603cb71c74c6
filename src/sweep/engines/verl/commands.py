"""`trial_command`: how a waiting verl is told to run a trial; `file_logger`: where verl's own log of it goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial

METRICS_FILE = "VERL_FILE_LOGGER_PATH"
"""Variable with the file that verl's file logger empties and writes; its folder must be there. Source: verl
utils/tracking.py."""


def trial_command(trial: Trial, folder: Path, overrides: Overrides, extras: Sequence[str]) -> dict[str, object]:
    """The mailbox command that has a waiting verl run the trial."""
    return {
        "type": "trial",
        "id": trial.id,
        "overrides": [*overrides.command_line(), *extras],
        "steps": trial.steps,
        "folder": str(folder),
        "env": file_logger(folder),
    }


def file_logger(folder: Path) -> dict[str, str]:
    """Where verl's own file logger writes, on the node that trains."""
    return {METRICS_FILE: str(folder / "verl.jsonl")}
