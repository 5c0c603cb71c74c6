"""`Checkpoints`: the policy on the files that verl writes, `global_step_N` in the trainer's folder.

verl itself would delete the best checkpoint with the old ones, resume from whatever its tracker file names, and start
anew without a word if that is gone. Here a mark with the size of each file is written last: a folder whose mark is
unfinished, or whose files have other sizes, is not complete. Folders that verl wrote without us have no mark and are
complete up to its tracker file.

Only the files that the trainer's own process sees are looked at.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import open_dict

from sweep.core.checkpoint_policy import KEEP_LAST, Best, better, retention

MARK = "sweep_checkpoint.json"
"""In each complete checkpoint: its step and the bytes of each of its files."""

BEST = "sweep_best.json"
"""Beside the checkpoints: step and reward of the best one."""

TRACKER = "latest_checkpointed_iteration.txt"
"""Source: verl utils/checkpoint/checkpoint_manager.py."""

PREFIX = "global_step_"
REWARD = "critic/score/mean"


class Checkpoints:
    """Belongs to one trial of a trainer."""

    def __init__(self, folder: Path, keep_last: int, best_gain: float) -> None:
        self._folder = folder
        self._keep_last = keep_last
        self._best_gain = best_gain
        self._rewards: list[float] = []
        self._saved: int | None = None
        self._best = read_best(folder)

    @classmethod
    def of(cls, trainer: Any) -> Checkpoints:
        """The policy that the trainer's configuration asks for."""
        config, settings = trainer.config.trainer, trainer.settings
        keep_last = settings.keep_last or config.get("max_actor_ckpt_to_keep") or KEEP_LAST
        return cls(Path(config.default_local_dir), keep_last, settings.best_gain)

    def begins(self, step: int) -> None:
        """verl is about to write the checkpoint of this step, perhaps over an earlier one."""
        write(self._folder / f"{PREFIX}{step}" / MARK, {"step": step})

    def saved(self, step: int) -> None:
        """verl has written the checkpoint of this step, and everything of ours lies beside it."""
        mark(self._folder / f"{PREFIX}{step}", step)
        self._saved = step

    def judged(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Takes the step's reward; after a save: the best is known, old ones are gone, and metrics say so."""
        self._rewards.append(float(metrics.get(REWARD, math.nan)))
        if self._saved is None:
            return {}
        known = [reward for reward in self._rewards if math.isfinite(reward)]
        best = better(self._best, self._saved, fmean(known) if known else math.nan, self._best_gain)
        if best is not None and best is not self._best:
            write(self._folder / BEST, {"step": best.step, "reward": best.reward})
        self._best, self._saved, self._rewards = best, None, []
        keep = retention(found(self._folder), best.step if best else None, self._keep_last)
        for step in keep.delete:
            remove(self._folder / f"{PREFIX}{step}")
        told = {"sweep/checkpoints_kept": float(len(keep.keep))}
        return told | ({"sweep/best_checkpoint_step": float(best.step)} if best else {})


def newest_complete(folder: Path) -> Path | None:
    """The checkpoint to resume from; None if no complete one is there."""
    step = retention(found(folder), None).resume_from
    return None if step is None else folder / f"{PREFIX}{step}"


def found(folder: Path) -> dict[int, bool]:
    """Step of each checkpoint in the folder to whether it is complete."""
    tracked = _tracked(folder)
    return {step: complete(folder / f"{PREFIX}{step}", tracked) for step in _steps(folder)}


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


def remove(checkpoint: Path) -> None:
    """The checkpoint is gone, or at least no longer looks like one: half of it must not be resumed from."""
    doomed = checkpoint.with_name(f"deleted_{checkpoint.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.replace(checkpoint, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


@contextmanager
def verls_own_deletion_off(config: Any) -> Iterator[None]:
    """verl keeps every checkpoint inside: it would delete the best with the old ones."""
    keys = ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")
    before = {key: config.trainer.get(key) for key in keys}
    with open_dict(config):
        config.trainer.update(dict.fromkeys(keys))
    try:
        yield
    finally:
        with open_dict(config):
            config.trainer.update(before)


@contextmanager
def only_complete_ones(config: Any) -> Iterator[None]:
    """verl finds a complete checkpoint inside, or none.

    Raises:
        ValueError: if the configuration names one that is not complete.
    """
    trainer = config.trainer
    before = {"resume_mode": trainer.resume_mode, "resume_from_path": trainer.get("resume_from_path")}
    with open_dict(config):
        trainer.update(_resumption(trainer))
    try:
        yield
    finally:
        with open_dict(config):
            trainer.update(before)


def _resumption(trainer: Any) -> dict[str, str]:
    """verl's settings of what to resume from, as they should be."""
    folder = Path(trainer.default_local_dir)
    newest = newest_complete(folder)
    if trainer.resume_mode == "auto":
        if newest is None:
            return {"resume_mode": "disable"}
        return {"resume_mode": "resume_path", "resume_from_path": str(newest)}
    if trainer.resume_mode == "resume_path":
        asked = Path(str(trainer.resume_from_path))
        if not complete(asked, _tracked(asked.parent)):
            near = newest_complete(asked.parent)
            hint = f"the newest complete one is {near}" if near else "none beside it is complete"
            raise ValueError(f"{asked} was not written to its end or is damaged; {hint}")
    return {}


def read_best(folder: Path) -> Best | None:
    """The best checkpoint that an earlier life of the run knew, if it is still there."""
    try:
        content = json.loads((folder / BEST).read_text(encoding="utf-8"))
        best = Best(int(content["step"]), float(content["reward"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return best if (folder / f"{PREFIX}{best.step}").is_dir() else None


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


def _tracked(folder: Path) -> int:
    try:
        return int((folder / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
