"""Which of a trial's own checkpoints it can go on from: `latest_whole`, and the steps before it: `steps_up_to`.

Looks at files only. A trial that trained on a node whose disk is not seen from here has none, and starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sweep.engines.hosted_runtime import METRICS_FILE
from sweep.engines.verl.checkpoint_files import PREFIX, complete, tracked_step
from sweep.ports import Checkpoint

CHECKPOINTS = "checkpoints"
"""Folder of verl's checkpoints in the trial's folder."""

PARTS = ("actor", "data.pt")
"""What every checkpoint of verl has; a critic's part is there if the trial has one."""


def latest_whole(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint whose steps were all reported: verl saves a step before it reports it."""
    last_whole = tracked_step(folder / CHECKPOINTS)
    reported = len(reported_steps(folder))
    steps = sorted((_number(p.name.removeprefix(PREFIX)), p) for p in _step_folders(folder))
    usable = [
        (step, path) for step, path in steps if 0 < step <= min(last_whole, reported) and _is_whole(path, last_whole)
    ]
    return Checkpoint(usable[-1][0], str(usable[-1][1])) if usable else None


def reported_steps(folder: Path) -> dict[int, Mapping[str, float]]:
    """Metrics by step, from step 1 without a gap; what a killed writer left of a line is not read."""
    found: dict[int, Mapping[str, float]] = {}
    for line in _text(folder / METRICS_FILE).splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row["step"] != len(found) + 1:
            break
        found[row["step"]] = row["data"]
    return found


def _step_folders(folder: Path) -> list[Path]:
    return [p for p in (folder / CHECKPOINTS).glob(f"{PREFIX}*") if p.is_dir()]


def _is_whole(path: Path, last_whole: int) -> bool:
    """Whether nothing is missing: verl deletes a checkpoint that it keeps no longer part by part."""
    critic = path / "critic"
    parts = all((path / part).exists() for part in PARTS) and (not critic.exists() or any(critic.iterdir()))
    return parts and complete(path, last_whole)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0
