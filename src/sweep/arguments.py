"""Command lines by `argparse`: `Parser`, the types of arguments `count` and `size`, and `pairs` of NAME=VALUE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import IO

from sweep.errors import ConfigError
from sweep.report.progress import say


class Parser(argparse.ArgumentParser):
    """Its help may be read by somebody who leaves early (`--help | head -1`)."""

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print the help to the file, or for people."""
        if file is None:
            say(self.format_help().rstrip("\n"))
        else:
            super().print_help(file)


def count(text: str) -> int:
    """A whole number, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def size(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return number


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """The values by their names, as an option that may be given several times has them.

    Raises:
        ConfigError: for what is not NAME=VALUE.
    """
    found = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} wants NAME=VALUE, got {item}")
        found[name.lstrip("+")] = value
    return found
