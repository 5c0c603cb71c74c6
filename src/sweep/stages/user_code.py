"""`call`: a rule or an objective of the user's, by import path. What fails in it is told as theirs, with its line."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from typing import Any

from sweep.core.stage import Stage
from sweep.errors import ConfigError, SweepError


def call(stage: Stage, kind: str, import_path: str, *arguments: Any) -> Any:
    """What the function returns; `kind` is what the user calls it, "rule" or "objective".

    Raises:
        ConfigError: if it raises anything but an error of ours.
    """
    module, _, function = import_path.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    except SweepError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"stage {stage.name}: {kind} {import_path} raised {type(error).__name__}: {error} "
            f"({Path(last.filename).name}, line {last.lineno}: {last.line})"
        ) from error
