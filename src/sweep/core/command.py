"""`command`: a command line for a user to paste, made from the one that was typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command(program: str, *words: str, asked: Sequence[str], leave_out: Sequence[str] = ()) -> str:
    """`python -m PROGRAM WORDS` with the settings asked for, less those keys that are left out or stand in `words`."""
    given = {_key(word) for word in words if "=" in word}
    kept = [setting for setting in asked if _key(setting) not in {*given, *leave_out}]
    return " ".join(["python -m", program, *map(shlex.quote, (*words, *kept))])


def _key(setting: str) -> str:
    return setting.partition("=")[0]
