"""`Checkpoints`: the policy on the files that verl writes, `global_step_N` in the trainer's folder.

verl itself would delete the best checkpoint with the old ones, resume from whatever its tracker file names, and start
anew without a word if that is gone. Which one is complete is told by `checkpoint_files`.

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
from sweep.engines.verl.checkpoint_files import (
    MARK,
    complete,
    found,
    mark,
    newest_complete,
    step_folder,
    tracked_step,
    write,
)

BEST = "sweep_best.json"
"""Beside the checkpoints: step and reward of the best one."""

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
        write(step_folder(self._folder, step) / MARK, {"step": step})

    def saved(self, step: int) -> None:
        """verl has written the checkpoint of this step, and everything of ours lies beside it."""
        mark(step_folder(self._folder, step), step)
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
            remove(step_folder(self._folder, step))
        told = {"sweep/checkpoints_kept": float(len(keep.keep))}
        return told | ({"sweep/best_checkpoint_step": float(best.step)} if best else {})


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
def only_complete_ones(config: Any) -> Iterator[Path | None]:
    """verl finds a complete checkpoint inside, or none; gives the one that it resumes from.

    Raises:
        ValueError: if the configuration names one that is not complete.
    """
    trainer = config.trainer
    before = {"resume_mode": trainer.resume_mode, "resume_from_path": trainer.get("resume_from_path")}
    with open_dict(config):
        trainer.update(_resumption(trainer))
    try:
        yield Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else None
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
        if not complete(asked, tracked_step(asked.parent)):
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
    return best if step_folder(folder, best.step).is_dir() else None
