"""Which of a trial's own checkpoints it can go on from: `latest_whole`, and the steps before it: `steps_up_to`.

Looks at files only. A trial that trained on a node whose disk is not seen from here has none, and starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sweep.engines.hosted_runtime import METRICS_FILE
from sweep.engines.verl.checkpoint_files import found, step_folder, tracked_step
from sweep.ports import Checkpoint

CHECKPOINTS = "checkpoints"
"""Folder of verl's checkpoints in the trial's folder."""

PARTS = ("actor", "data.pt")
"""What every checkpoint of verl has; a critic's part is there if the trial has one."""


def latest_whole(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint whose steps were all reported: verl saves a step before it reports it."""
    saved = folder / CHECKPOINTS
    last = min(tracked_step(saved), len(reported_steps(folder)))
    usable = [step for step, whole in found(saved).items() if whole and 0 < step <= last]
    usable = [step for step in usable if _has_its_parts(step_folder(saved, step))]
    return Checkpoint(max(usable), str(step_folder(saved, max(usable)))) if usable else None


def reported_steps(folder: Path) -> dict[int, Mapping[str, float]]:
    """Metrics by step, from step 1 without a gap; what a killed writer left of a line is not read."""
    rows: dict[int, Mapping[str, float]] = {}
    for line in _text(folder / METRICS_FILE).splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row["step"] != len(rows) + 1:
            break
        rows[row["step"]] = row["data"]
    return rows


def _has_its_parts(checkpoint: Path) -> bool:
    """Whether nothing is missing: verl deletes a checkpoint that it keeps no longer part by part."""
    critic = checkpoint / "critic"
    return all((checkpoint / part).exists() for part in PARTS) and (not critic.exists() or any(critic.iterdir()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
