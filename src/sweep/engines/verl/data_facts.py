"""What is known of training data and reward function before verl reads them: `read_data`, `reward_problem`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SOURCE_COLUMN = "data_source"
REWARD_SECONDS = 120.0
"""A reward function that takes longer to import is reported as such."""

LOADER = """
import importlib.util, sys
path, name = sys.argv[1:]
spec = importlib.util.spec_from_file_location("reward_under_test", path)
if spec is None or spec.loader is None:
    raise SystemExit(f"{path} is not a Python file")
module = importlib.util.module_from_spec(spec)
sys.modules["reward_under_test"] = module
spec.loader.exec_module(module)
if not callable(getattr(module, name, None)):
    raise SystemExit(f"{path} has no function {name}")
"""


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Rows over all files, columns that every file has, data sources, and files that could not be read, with why."""

    rows: int | None = None
    columns: frozenset[str] | None = None
    sources: frozenset[str] | None = None
    unreadable: tuple[str, ...] = field(default_factory=tuple)


def read_data(files: Iterable[str]) -> DataFacts:
    """What the files hold; only column heads and one column of a Parquet file are read."""
    rows, columns, sources, unreadable = 0, list[frozenset[str]](), set[str](), list[str]()
    for name in files:
        file = Path(name).expanduser()
        try:
            count, names, found = _parquet(file) if file.suffix == ".parquet" else _json_lines(file)
        except OSError as problem:
            unreadable.append(f"{name}: {problem.strerror or problem}")
            continue
        except ValueError as problem:  # pyarrow's own errors are ValueErrors too
            unreadable.append(f"{name}: {problem}")
            continue
        rows += count
        columns.append(names)
        sources |= found
    if not columns:
        return DataFacts(unreadable=tuple(unreadable))
    return DataFacts(rows, frozenset.intersection(*columns), frozenset(sources) or None, tuple(unreadable))


def reward_problem(path: str | None, name: str) -> str | None:
    """Why the reward function cannot be loaded, or None; it is imported in a process of its own."""
    if not path:
        return None
    file = Path(path).expanduser()
    if not file.is_file():
        return f"{path} does not exist"
    try:
        child = subprocess.run(
            [sys.executable, "-c", LOADER, str(file), name],
            capture_output=True,
            text=True,
            timeout=REWARD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"importing {path} takes more than {REWARD_SECONDS:g} s"
    if child.returncode == 0:
        return None
    return (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]


def _parquet(file: Path) -> tuple[int, frozenset[str], set[str]]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table:
        names = frozenset(table.schema_arrow.names)
        found: set[str] = set()
        if SOURCE_COLUMN in names:
            for batch in table.iter_batches(columns=[SOURCE_COLUMN]):
                found.update(str(value) for value in batch.column(0).unique().to_pylist() if value is not None)
        return table.metadata.num_rows, names, found


def _json_lines(file: Path) -> tuple[int, frozenset[str], set[str]]:
    rows, names, found = 0, frozenset[str](), set[str]()
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            if not line.strip():
                continue
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("a line is not a JSON object")
            rows += 1
            names = names or frozenset(entry)
            if isinstance(entry.get(SOURCE_COLUMN), str):
                found.add(entry[SOURCE_COLUMN])
    return rows, names, found
