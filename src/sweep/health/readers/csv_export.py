"""CSV exports: a step column and one column a metric, several runs by a run column or W&B's `run - metric` headings,
or one measurement a row (`metric,step,value`).

An empty cell is a metric that the row does not have; `nan` is one that was logged as NaN.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sweep.errors import ConfigError
from sweep.health.readers.jsonl import MAX_STEP, STEP_FIELDS
from sweep.health.readers.logged_run import LoggedRun, finish_all, target
from sweep.health.table_builder import TableBuilder

RUN_FIELDS = ("seed", "run", "run_id", "run id", "run_name", "trial", "trial_id", "experiment", "name")
"""Columns that tell runs of one file apart. Ours; compared without case."""

METRIC_FIELDS = ("metric", "key", "tag")
VALUE_FIELDS = ("value",)
"""Columns of an export with one measurement a row. Source: MLflow's and TensorBoard's own tables."""

_RANGES = ("__MIN", "__MAX")


@dataclass(frozen=True, slots=True)
class _Heading:
    """Where things stand in a row: the step, the run if there is one, (run, metric) by column, or metric and value."""

    step: int
    run: int | None
    run_name: str
    metrics: tuple[tuple[int, str, str], ...]
    long: tuple[int, int] | None


def read_csv(lines: Iterable[bytes], label: str = "run") -> list[LoggedRun]:
    """The runs in a CSV file; rows without a readable step are counted in the notes.

    Raises:
        ConfigError: there is no step column, or no row has a step and a number.
    """
    rows = _rows(lines)
    head = next(rows, None)
    if head is None:
        raise ConfigError("the file is empty; a CSV export has a heading with a step column")
    heading = _heading(head)
    builders: dict[str, list[TableBuilder]] = {}
    damaged = 0
    for cells in rows:
        step = _step(cells, heading.step)
        if step is None:
            damaged += bool(any(cells))
            continue
        for run, pairs in _measurements(cells, heading).items():
            target(builders.setdefault(run, []), step, [name for name, _ in pairs]).add_pairs(step, pairs)
    if not builders:
        raise ConfigError(f"no row of {damaged + 1} has a step and a number beside it")
    notes = (f"{damaged} rows have no readable step and were left out",) if damaged else ()
    return [
        logged
        for run, of_run in builders.items()
        for logged in finish_all(f"{label} {run}" if run else label, of_run, notes)
    ]


def _rows(lines: Iterable[bytes]) -> Iterator[list[str]]:
    """Cells by row; the delimiter is the one of comma, semicolon and tab that the heading has most of."""
    text = (line.decode("utf-8", "replace").replace("\0", "") for line in lines)
    head = next((line for line in text if line.strip()), None)
    if head is None:
        return
    head = head.lstrip("\ufeff")
    delimiter = max(",;\t", key=head.count)
    quoted = _closed(line for part in ((head,), text) for line in part)
    reader = csv.reader(quoted, delimiter=delimiter)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue


def _closed(lines: Iterable[str]) -> Iterator[str]:
    """Lines with quotes balanced, so that a damaged one cannot swallow the rest of the file."""
    for line in lines:
        yield line.replace('"', "") if line.count('"') % 2 else line


def _heading(cells: Sequence[str]) -> _Heading:
    names = [cell.strip() for cell in cells]
    folded = [name.casefold() for name in names]
    step = next((folded.index(f.casefold()) for f in STEP_FIELDS if f.casefold() in folded), None)
    if step is None:
        raise ConfigError(
            f"no step column: found {', '.join(n[:40] for n in names[:8])}; wanted one of {', '.join(STEP_FIELDS)}"
        )
    run = next((folded.index(f) for f in RUN_FIELDS if f in folded), None)
    metric = next((folded.index(f) for f in METRIC_FIELDS if f in folded), None)
    value = next((folded.index(f) for f in VALUE_FIELDS if f in folded), None)
    run_name = names[run] if run is not None else ""
    if metric is not None and value is not None:
        return _Heading(step, run, run_name, (), (metric, value))
    columns = tuple(
        (place, *_split(name))
        for place, name in enumerate(names)
        if place not in (step, run) and name and not name.endswith(_RANGES)
    )
    return _Heading(step, run, run_name, columns, None)


def _split(name: str) -> tuple[str, str]:
    """Run and metric of a heading; W&B puts the run's name in front."""
    run, separator, metric = name.rpartition(" - ")
    return (run, metric) if separator else ("", name)


def _step(cells: Sequence[str], place: int) -> int | None:
    value = _number(cells[place]) if place < len(cells) else None
    return int(value) if value is not None and abs(value) < MAX_STEP else None


def _number(cell: str) -> float | None:
    """The cell's number; None for an empty cell or text."""
    text = cell.strip()
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _measurements(cells: Sequence[str], heading: _Heading) -> dict[str, list[tuple[str, float]]]:
    """Metrics and values by run."""
    in_row = heading.run is not None and heading.run < len(cells)
    run = f"{heading.run_name}={cells[heading.run or 0].strip()}" if in_row else ""
    if heading.long is not None:
        metric, value = (cells[place] if place < len(cells) else "" for place in heading.long)
        number = _number(value)
        return {} if number is None or not metric.strip() else {run: [(metric.strip(), number)]}
    found: dict[str, list[tuple[str, float]]] = {}
    for place, of_run, name in heading.metrics:
        number = _number(cells[place]) if place < len(cells) else None
        if number is not None:
            found.setdefault(of_run or run, []).append((name, number))
    return found
