"""`TableBuilder`: grows a `MetricTable` row by row in about nine bytes a value, for logs of any length.

A run that is resumed from a checkpoint logs some steps again. Its second account replaces the first one, together
with whatever the first life logged beyond that step.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from sweep.errors import ConfigError
from sweep.health.metric_table import Column, FloatArray, MaskArray, MetricTable

MAX_VALUES = 32_000_000
"""Most values a table may hold: 290 MB. A gigabyte of verl's console holds about 24 million."""


class _Growing:
    """One column; `present` stays None as long as every row so far has a value."""

    __slots__ = ("present", "values")

    def __init__(self, rows: int) -> None:
        self.values = array("d", bytes(8 * rows))
        self.present: bytearray | None = bytearray(rows) if rows else None

    def put(self, row: int, value: float) -> None:
        """Set the value of a row that may lie beyond the end or before it."""
        values = self.values
        missing = row - len(values)
        if missing > 0:
            if self.present is None:
                self.present = bytearray(b"\x01" * len(values))
            values.extend([0.0] * missing)
            self.present.extend(bytes(missing))
        if row == len(values):
            values.append(value)
            if self.present is not None:
                self.present.append(1)
            return
        values[row] = value
        if self.present is not None:
            self.present[row] = 1

    def has(self, row: int) -> bool:
        """Whether the row has a value."""
        return row < len(self.values) and (self.present is None or bool(self.present[row]))

    def finish(self, rows: int) -> tuple[FloatArray, MaskArray | None]:
        """Values and presence, both of shape (rows,)."""
        if len(self.values) < rows:
            self.put(rows - 1, 0.0)
            assert self.present is not None
            self.present[-1] = 0
        present = None if self.present is None else np.frombuffer(self.present, dtype=np.bool_)
        return np.frombuffer(self.values, dtype=np.float64), present


class TableBuilder:
    """Collects rows; `finish` may be called once."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._columns: dict[str, _Growing] = {}
        self._low_precision: set[str] = set()
        self._values = 0
        self._rows = 0
        self._last_step: int | None = None
        self.first_step: int | None = None
        self.rewound_to: list[int] = []
        self.repeated_rows = 0

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def last_step(self) -> int | None:
        """The highest step that is still part of the table."""
        return self._last_step

    def add(self, step: int, pairs: Sequence[tuple[str, float]]) -> None:
        """Put one row. A step that is known takes further metrics; one that repeats a metric starts a second account.

        Raises:
            ConfigError: the log holds more values than fit.
        """
        row = self._row_of.get(step)
        if row is not None and self.repeats(step, pairs):
            row = self._second_account(step, row)
        if row is None:
            row = self._row_of[step] = self._rows
            self._rows += 1
        columns = self._columns
        for name, value in pairs:
            column = columns.get(name)
            if column is None:
                column = columns[name] = _Growing(row)
            column.put(row, value)
        self._values += len(pairs)
        if self._values > MAX_VALUES:
            raise ConfigError(
                f"the log holds more than {MAX_VALUES:,} values; cut it to its last part, say with tail -c 1G"
            )
        self._last_step = step if self._last_step is None else max(step, self._last_step)
        self.first_step = step if self.first_step is None else min(step, self.first_step)

    def repeats(self, step: int, pairs: Sequence[tuple[str, float]]) -> bool:
        """Whether the step is known with one of these metrics."""
        row = self._row_of.get(step)
        return row is not None and any(name in self._columns and self._columns[name].has(row) for name, _ in pairs)

    def mark_rounded(self, name: str) -> None:
        """Note that a zero of this metric may be a small number printed with too few decimals."""
        self._low_precision.add(name)

    def extend(self, table: MetricTable) -> None:
        """Put all rows of another table after those already here, as a resumed run does."""
        for step, metrics in table.rows():
            self.add(step, list(metrics.items()))
        self._low_precision |= table.low_precision

    def _second_account(self, step: int, row: int) -> int | None:
        """The row to write to: none if the run went back in time, the same one if the last step is merely repeated."""
        if step == self._last_step:
            self.repeated_rows += 1
            return row
        self._row_of = {s: r for s, r in self._row_of.items() if s < step}
        self.rewound_to.append(step)
        self._last_step = max(self._row_of, default=None)
        return None

    def finish(self) -> MetricTable:
        """The table of the rows that were not replaced, in order of steps."""
        steps = np.array(sorted(self._row_of), dtype=np.int64)
        keep = np.array([self._row_of[s] for s in steps.tolist()], dtype=np.int64)
        in_order = len(keep) == self._rows and bool(np.all(np.diff(keep) == 1))
        columns: dict[str, Column] = {}
        for name in list(self._columns):
            values, present = self._columns.pop(name).finish(self._rows)
            if not in_order:
                values, present = values[keep], None if present is None else present[keep]
            if present is not None and not present.any():
                continue
            columns[name] = Column(values, None if present is None or present.all() else present)
        return MetricTable(steps, columns, frozenset(self._low_precision & columns.keys()))
