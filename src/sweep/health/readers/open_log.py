"""`read_runs`: whatever a path or an address names, the runs in it, by the reader that fits.

What a file is, its content decides; the name only breaks ties. Nothing but a `ConfigError` leaves this module for
any file, however damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from sweep.errors import ConfigError
from sweep.health.readers.console import read_console
from sweep.health.readers.csv_export import read_csv
from sweep.health.readers.jsonl import STEP_FIELDS, read_jsonl
from sweep.health.readers.lines import lines_of
from sweep.health.readers.logged_run import LoggedRun
from sweep.health.readers.mlflow_run import (
    is_file_store,
    is_run_folder,
    read_file_store,
    read_run_folder,
    read_tracking,
)

SNIFF_LINES = 50
"""Lines at the start that decide what a file is."""

LOG_SUFFIXES = ((".jsonl",), (".csv",), (".log", ".txt"))
"""Files of a folder that are logs, the most exact kind first."""

SQLITE_MAGIC = b"SQLite format 3\x00"


def read_runs(source: str, run: str | None = None) -> list[LoggedRun]:
    """The runs in a file, folder, database or tracking server; `run` picks one of an MLflow store by id or name.

    Raises:
        ConfigError: there is nothing to read, or nothing that is a training log.
    """
    if source.startswith("runs:/"):
        return [read_tracking(_default_tracking_uri(), source.removeprefix("runs:/").split("/")[0])]
    if "://" in source:
        return [read_tracking(source, run)]
    path = Path(source).expanduser()
    if path.is_dir():
        return _read_folder(path, run)
    if _starts_with(path, SQLITE_MAGIC):
        return [read_tracking(f"sqlite:///{path.resolve()}", run)]
    return read_lines(lines_of(path), path.name)


def read_lines(lines: Iterable[bytes], name: str = "run") -> list[LoggedRun]:
    """The runs in lines of JSON, CSV or a console, whichever they are.

    Raises:
        ConfigError: they are no training log.
    """
    stream = iter(lines)
    head = list(islice(stream, SNIFF_LINES))
    everything = chain(head, stream)
    label = Path(name).stem or "run"
    if _looks_like_json(head):
        return read_jsonl(everything, label)
    if _looks_like_csv(head):
        return read_csv(everything, label)
    return read_console(everything)


def _read_folder(path: Path, run: str | None) -> list[LoggedRun]:
    if is_run_folder(path):
        return [read_run_folder(path)]
    if is_file_store(path):
        return [read_file_store(path, run)]
    found = [[p for p in sorted(path.iterdir()) if p.suffix in group] for group in LOG_SUFFIXES]
    best = next((logs for logs in found if logs), [])
    if len(best) == 1:
        return read_lines(lines_of(best[0]), best[0].name)
    raise ConfigError(
        f"{path} is no MLflow run or store, and holds {len(best)} log files "
        f"({', '.join(p.name for p in best[:5]) or 'none'}); name one file"
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def _looks_like_json(head: list[bytes]) -> bool:
    """Whether most of the first lines are objects, or at least begin as one: the last may be cut."""
    filled = [line.strip() for line in head if line.strip()]
    if not filled:
        return False
    return sum(line.startswith(b"{") for line in filled) * 2 > len(filled) and any(map(_is_object, filled))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return line.startswith((b'{"step"', b'{"data"'))


def _looks_like_csv(head: list[bytes]) -> bool:
    """Whether the first filled line is a heading with a step column among several."""
    first = next((line for line in head if line.strip()), b"").decode("utf-8", "replace").lstrip("\ufeff")
    cells = [cell.strip().strip('"').casefold() for cell in first.replace(";", ",").replace("\t", ",").split(",")]
    return len(cells) > 1 and any(field.casefold() in cells for field in STEP_FIELDS)


def _default_tracking_uri() -> str:
    import mlflow

    return str(mlflow.get_tracking_uri())
