"""`TableBuilder`: grows a `MetricTable` row by row in about eight bytes a value, for logs of any length.

Rows with the same metrics are kept as one block and spread over the columns together. A run that is resumed from a
checkpoint logs some steps again: its second account replaces the first one, with all that the first life logged
beyond that step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from sweep.errors import ConfigError
from sweep.health.growing_column import GrowingColumn
from sweep.health.metric_table import Column, MetricTable

MAX_VALUES = 40_000_000
"""Most values a table may hold: 320 MB. A gigabyte of verl's console holds about 24 million."""

BLOCK_ROWS = 512
"""Rows that are spread over the columns at once."""


class TableBuilder:
    """Collects rows; `finish` may be called once."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._columns: dict[str, GrowingColumn] = {}
        self._low_precision: set[str] = set()
        self._values = 0
        self._rows = 0
        self._block_names: tuple[str, ...] = ()
        self._block = array("d")
        self._block_rows = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.rewound_to: list[int] = []
        self.repeated_rows = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, step: int, names: tuple[str, ...], values: Sequence[float]) -> None:
        """Put one row, each name once. A known step takes further metrics; one that repeats a metric begins anew.

        Raises:
            ConfigError: the log holds more values than fit.
        """
        row = self._row_of.get(step)
        if row is not None and self.repeats(step, names):
            row = self._second_account(step, row)
        if row is None:
            self._append(step, names, values)
        else:
            self._flush()
            for name, value in zip(names, values, strict=True):
                self._column(name).put(row, value)
        self._values += len(names)
        if self._values > MAX_VALUES:
            raise ConfigError(
                f"the log holds more than {MAX_VALUES:,} values; cut it to its last part, say with tail -c 1G"
            )
        self.last_step = step if self.last_step is None else max(step, self.last_step)
        self.first_step = step if self.first_step is None else min(step, self.first_step)

    def add_pairs(self, step: int, pairs: Iterable[tuple[str, float]]) -> None:
        """Put one row given as pairs; of a name given twice the last value counts."""
        metrics = dict(pairs)
        self.add(step, tuple(metrics), list(metrics.values()))

    def repeats(self, step: int, names: Iterable[str]) -> bool:
        """Whether the step is known with one of these metrics."""
        row = self._row_of.get(step)
        if row is None:
            return False
        self._flush()
        return any(name in self._columns and self._columns[name].has(row) for name in names)

    def extend(self, table: MetricTable) -> None:
        """Put all rows of another table after those already here, as a resumed run does."""
        for step, metrics in table.rows():
            self.add_pairs(step, metrics.items())
        self._low_precision |= table.low_precision

    def mark_rounded(self, name: str) -> None:
        """Note that a zero of this metric may be a small number printed with too few decimals."""
        self._low_precision.add(name)

    def finish(self) -> MetricTable:
        """The table of the rows that were not replaced, in order of steps."""
        self._flush()
        steps = np.array(sorted(self._row_of), dtype=np.int64)
        keep = np.array([self._row_of[s] for s in steps.tolist()], dtype=np.int64)
        in_order = len(keep) == self._rows and bool(np.all(np.diff(keep) == 1))
        columns: dict[str, Column] = {}
        for name in list(self._columns):
            values, present = self._columns.pop(name).finish(self._rows)
            if not in_order:
                values, present = values[keep], None if present is None else present[keep]
            if present is None or present.any():
                columns[name] = Column(values, None if present is None or present.all() else present)
        return MetricTable(steps, columns, frozenset(self._low_precision & columns.keys()))

    def _append(self, step: int, names: tuple[str, ...], values: Sequence[float]) -> None:
        if names != self._block_names or self._block_rows >= BLOCK_ROWS:
            self._flush()
            self._block_names = names
        self._row_of[step] = self._rows
        self._rows += 1
        self._block.extend(values)
        self._block_rows += 1

    def _flush(self) -> None:
        """Spread the block over the columns."""
        if not self._block_rows:
            return
        first = self._rows - self._block_rows
        table = np.frombuffer(self._block, dtype=np.float64).reshape(self._block_rows, len(self._block_names))
        for name, column in zip(self._block_names, table.T, strict=True):
            self._column(name).extend(first, column)
        del table
        self._block = array("d")
        self._block_rows = 0

    def _column(self, name: str) -> GrowingColumn:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = GrowingColumn()
        return column

    def _second_account(self, step: int, row: int) -> int | None:
        """The row to write to: none if the run went back in time, the same one if the last step is merely repeated."""
        if step == self.last_step:
            self.repeated_rows += 1
            return row
        self._row_of = {s: r for s, r in self._row_of.items() if s < step}
        self.rewound_to.append(step)
        self.last_step = max(self._row_of, default=None)
        return None
