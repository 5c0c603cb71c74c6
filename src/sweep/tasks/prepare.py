"""`prepare`: from what a configuration says of model and task to the verl settings of files that exist.

What says `generated` is made. Nothing is downloaded: a model that is a hub id is left for transformers to resolve.
"""

from __future__ import annotations

from pathlib import Path

from sweep.core.overrides import Overrides
from sweep.errors import ConfigError
from sweep.tasks import arithmetic, tiny_model

GENERATED = "generated"
BUILTIN = "builtin"
"""A reward of this name is verl's own for the rows' `data_source`."""

REWARDS_FILE = Path(__file__).with_name("rewards.py")


def prepare(
    folder: Path,
    *,
    model_path: str,
    train_files: str = GENERATED,
    val_files: str = GENERATED,
    reward: str = "compute_score",
    seed: int = 0,
) -> Overrides:
    """The verl settings that name the model, the data and the reward, all of it in place.

    Args:
        folder: where generated models and data go, shared by every campaign.
        model_path: `generated`, a local folder or a hub id.
        reward: a function of `sweep.tasks.rewards`, `builtin`, or `FILE.py:FUNCTION`.
        seed: of the generated data.

    Raises:
        ConfigError: a file or reward that does not exist, or a folder that cannot be written.
    """
    generated = model_path == GENERATED
    model = str(tiny_model.make(folder)) if generated else _local_or_hub(model_path)
    train, val = train_files, val_files
    if GENERATED in (train_files, val_files):
        # The tiny model was taught columns; a real one knows sums already.
        made = arithmetic.make(folder, columns=tiny_model.COLUMNS if generated else None, seed=seed)
        train = str(made.train) if train_files == GENERATED else train_files
        val = str(made.val) if val_files == GENERATED else val_files
    return Overrides.of(
        {
            "actor_rollout_ref.model.path": model,
            "critic.model.path": model,
            "data.train_files": _existing_file(train, "task.train_files"),
            "data.val_files": _existing_file(val, "task.val_files"),
            **_reward_settings(reward),
        }
    )


def _local_or_hub(path: str) -> str:
    """A local folder as an absolute path; anything else unchanged if it reads as a hub id."""
    if Path(path).is_dir():
        return str(Path(path).resolve())
    if path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise ConfigError(f"model.path {path!r} is not a folder; give one, a hub id, or {GENERATED!r} for model=tiny")
    return path


def _existing_file(path: str, key: str) -> str:
    if not Path(path).is_file():
        raise ConfigError(f"{key} {path!r} is not a file; for GSM8K run scripts/prepare_gsm8k.py, which writes it")
    return str(Path(path).resolve())


def _reward_settings(reward: str) -> dict[str, object]:
    if reward == BUILTIN:
        return {}
    file, separator, function = reward.rpartition(":")
    path = Path(file) if separator else REWARDS_FILE
    if not path.is_file():
        raise ConfigError(f"task.reward {reward!r} names the file {file!r}, which does not exist")
    if f"def {function}(" not in path.read_text():
        raise ConfigError(f"task.reward {reward!r}: {path} has no function {function!r}")
    return {
        "reward.custom_reward_function.path": str(path.resolve()),
        "reward.custom_reward_function.name": function,
    }
