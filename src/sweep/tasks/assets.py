"""Model, data and reward of a campaign: named by marks in its settings, turned into paths where a trial runs.

A generated file's place is not part of what a trial is, so settings carry a mark (`asset:model`) and the engine puts
the path in at the last moment; a campaign's folder can move without its trials changing their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweep.core.overrides import Overrides
from sweep.errors import ConfigError
from sweep.tasks import arithmetic, rewards, tiny_model

GENERATED = "generated"
BUILTIN = "builtin"
MARK = "asset:"

MODEL_KEYS = ("actor_rollout_ref.model.path", "critic.model.path")
TRAIN_KEY, VAL_KEY = "data.train_files", "data.val_files"
REWARD_PATH_KEY, REWARD_NAME_KEY = "reward.custom_reward_function.path", "reward.custom_reward_function.name"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where model, data and reward come from: a path or hub id, or `generated` / `builtin`."""

    model: str
    train_files: str
    val_files: str
    reward: str


def settings(sources: Sources) -> list[tuple[str, object]]:
    """verl's settings for the sources, generated ones as marks."""
    model = MARK + "model" if sources.model == GENERATED else sources.model
    pairs: list[tuple[str, object]] = [(key, model) for key in MODEL_KEYS]
    pairs.append((TRAIN_KEY, MARK + "train" if sources.train_files == GENERATED else sources.train_files))
    pairs.append((VAL_KEY, MARK + "val" if sources.val_files == GENERATED else sources.val_files))
    if sources.reward != BUILTIN:
        path, _, name = sources.reward.rpartition(":")
        pairs.append((REWARD_PATH_KEY, path or MARK + "reward"))
        pairs.append((REWARD_NAME_KEY, name))
    return pairs


def build(sources: Sources, folder: Path) -> dict[str, str]:
    """Mark to absolute path of everything generated, made under `folder` unless it is there.

    Raises:
        ConfigError: if the folder cannot be written or a named file is missing.
    """
    made: dict[str, str] = {MARK + "reward": str(Path(rewards.__file__).resolve())}
    if sources.model == GENERATED:
        made[MARK + "model"] = str(tiny_model.make(folder).resolve())
    if GENERATED in (sources.train_files, sources.val_files):
        files = arithmetic.make(folder, columns=tiny_model.COLUMNS if sources.model == GENERATED else None)
        made[MARK + "train"], made[MARK + "val"] = str(files.train.resolve()), str(files.val.resolve())
    for key, given in (("task.train_files", sources.train_files), ("task.val_files", sources.val_files)):
        if given != GENERATED and not Path(given).exists():
            raise ConfigError(f"{key} names {given}, which is not there; scripts/ has what prepares a data set")
    return made


def located(overrides: Overrides, paths: dict[str, str]) -> Overrides:
    """The overrides with every mark replaced by its path."""
    return Overrides.of([(k, paths.get(v, v) if isinstance(v, str) else v) for k, v in overrides])
