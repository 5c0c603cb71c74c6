"""The files in `sweeps/` as Hydra's group of that name: `offer`, and `own_stages` for those that a user added."""

from __future__ import annotations

import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from yaml import YAMLError

from sweep.config_schema import ALL_STAGES
from sweep.errors import ConfigError

SHIPPED = frozenset({"minibatch", "kl", "token_budget", "lr_lambda", "retest", "confirm"})
"""The stages that conf/config.yaml names itself."""

STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
TAKEN = (ALL_STAGES, "null", "true", "false", "nan", "inf")
"""Names that mean something else where a stage is named."""


def offer(folder: Path) -> None:
    """The stage files as Hydra's group `sweeps`.

    Not by way of the search path, which would need the folder above: every folder there, `runs` too, would be a group
    to Hydra, and a setting of that name could not be given on the command line.

    Raises:
        ConfigError: a file is not YAML.
    """
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.repo.pop("sweeps", None)
    for file in _stage_files(folder):
        try:
            content = _parsed(file.read_text(encoding="utf-8"))
        except (YAMLError, OSError, UnicodeError) as error:
            raise ConfigError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise ConfigError(f"{file} cannot be read: an anchor in it contains itself") from error
        if "defaults" in content:
            raise ConfigError(f"{file}: a stage's file is whole by itself and has no defaults")
        store.store(file.stem, content, group="sweeps", provider=str(file))


@cache
def _parsed(text: str) -> Any:
    """The file's content; parsing takes longer than all else that is done with it."""
    from omegaconf import OmegaConf

    return OmegaConf.load(StringIO(text))


def _stage_files(folder: Path) -> list[Path]:
    """The files that are stages; what an editor hides beside them is none.

    Raises:
        ConfigError: a file's name cannot be a stage's.
    """
    files = [file for file in sorted(folder.glob("*.yaml")) if not file.name.startswith(".")]
    for file in files:
        if not STAGE_NAME.fullmatch(file.stem) or file.stem.casefold() in TAKEN:
            raise ConfigError(
                f"{file} cannot be a stage: its name is letters, digits, '_' and '-', starts with a letter, "
                f"and is none of {', '.join(TAKEN)}"
            )
    return files


def own_stages(root: Path) -> list[str]:
    """Stages that a user added to `sweeps/`: every file there is a stage, whether conf/config.yaml names it or not."""
    return [
        f"+sweeps@stages.{file.stem}={file.stem}" for file in _stage_files(root / "sweeps") if file.stem not in SHIPPED
    ]
