"""`make`: the tiny model, ready for `from_pretrained`, without a download. It is made once and found afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sweep.errors import ConfigError
from sweep.tasks.content import build_once
from sweep.tasks.tiny_recipe import RECIPE
from sweep.tasks.tiny_tokenizer import CHAT_TEMPLATE, WORDS

BUILD_SECONDS = 600.0
"""Ours: it takes about ten seconds on one core; a machine that is busy elsewhere gets sixty times that."""

COLUMNS = RECIPE.columns
"""Digits of the additions that the model was taught; the arithmetic task must be made with the same."""


def make(folder: Path) -> Path:
    """The folder of the model and its tokenizer, somewhere under `folder`. Safe to call from several processes.

    Raises:
        ConfigError: the folder cannot be written, or the model cannot be made.
    """
    recipe = {**RECIPE.to_json(), "words": WORDS, "chat_template": CHAT_TEMPLATE}
    return build_once(folder, "tiny", recipe, _build)


def _build(target: Path) -> None:
    """Runs the lessons in a process of their own: the caller stays free of torch and of its seeds."""
    command = [sys.executable, "-m", "sweep.tasks.tiny_lessons", str(target)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"making the tiny model took more than {BUILD_SECONDS:.0f} s; is the machine busy?"
        ) from error
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"the tiny model could not be made: {last_line}; install the package with its dependencies")
