"""Folders named after what made them: built once, complete or absent, shared by every process that asks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sweep.core.overrides import content_hash
from sweep.errors import ConfigError


def build_once(parent: Path, name: str, recipe: Mapping[str, object], build: Callable[[Path], None]) -> Path:
    """`parent/NAME-HASH`, complete: found there, or built now. The hash is that of the recipe.

    The folder is built aside and renamed, so that a process that is killed leaves nothing behind that looks finished.
    Two processes may build at once: the first one to finish wins.

    Raises:
        ConfigError: the folder cannot be written.
    """
    final = parent / f"{name}-{content_hash(recipe)}"
    if final.is_dir():
        return final
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=parent) as scratch:
            unfinished = Path(scratch) / final.name
            unfinished.mkdir()
            build(unfinished)
            _rename_unless_there(unfinished, final)
    except OSError as error:
        raise ConfigError(f"cannot write {final}: {error.strerror or error}; choose a writable folder") from error
    return final


def _rename_unless_there(unfinished: Path, final: Path) -> None:
    try:
        os.rename(unfinished, final)
    except OSError:
        if not final.is_dir():  # another process was first only if its folder is there
            raise
