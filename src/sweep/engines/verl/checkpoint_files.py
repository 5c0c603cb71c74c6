"""verl's checkpoints as files, looked at alike by driver and trainer: `found`, `complete`, `newest_complete`, `mark`.

A mark with the size of each file is written last: a folder whose mark is unfinished, or whose files have other sizes,
is not complete. Folders that verl wrote without us have no mark and are complete up to its tracker file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sweep.core.checkpoint_policy import retention

MARK = "sweep_checkpoint.json"
"""In each complete checkpoint: its step and the bytes of each of its files."""

TRACKER = "latest_checkpointed_iteration.txt"
"""Names the step of the last checkpoint; verl writes it after everything else of that step.

Source: verl 0.9.1 trainer/ppo/v1/trainer_base.py, `_save_checkpoint`.
"""

PREFIX = "global_step_"


def step_folder(folder: Path, step: int) -> Path:
    """verl's checkpoint of this step among those in the folder."""
    return folder / f"{PREFIX}{step}"


def newest_complete(folder: Path) -> Path | None:
    """The checkpoint to resume from; None if no complete one is there."""
    step = retention(found(folder), None).resume_from
    return None if step is None else step_folder(folder, step)


def found(folder: Path) -> dict[int, bool]:
    """Step of each checkpoint in the folder to whether it is complete."""
    tracked = tracked_step(folder)
    return {step: complete(step_folder(folder, step), tracked) for step in _steps(folder)}


def complete(checkpoint: Path, tracked: int) -> bool:
    """Whether every file is there as it was written; without a mark of ours: whether verl's tracker passed it."""
    try:
        files = json.loads((checkpoint / MARK).read_text(encoding="utf-8"))["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except FileNotFoundError:
        if (checkpoint / MARK).exists():
            return False  # the mark is there, one of its files is not
        return int(checkpoint.name.removeprefix(PREFIX)) <= tracked
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def mark(checkpoint: Path, step: int) -> None:
    """The checkpoint is complete as it lies there."""
    sizes = {str(file.relative_to(checkpoint)): file.stat().st_size for file in _files(checkpoint)}
    write(checkpoint / MARK, {"step": step, "files": sizes})


def write(path: Path, content: Mapping[str, object]) -> None:
    """The file has the content, wholly or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps({"version": 1, **content}), encoding="utf-8")
    os.replace(draft, path)


def _files(checkpoint: Path) -> Iterator[Path]:
    return (file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != MARK)


def _steps(folder: Path) -> Iterator[int]:
    for checkpoint in sorted(folder.glob(f"{PREFIX}*")):
        number = checkpoint.name.removeprefix(PREFIX)
        if number.isdigit() and checkpoint.is_dir():
            yield int(number)


def tracked_step(folder: Path) -> int:
    """The step that verl's tracker file names; 0 if it names none."""
    try:
        return int((folder / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
