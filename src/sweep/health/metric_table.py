"""`MetricTable`: what a run logged, one column a metric, and `Series`, the logged points of one of them.

A metric that a step did not log is absent there, which is not the same as one that was logged as NaN.
Arrays are read-only by agreement: no rule changes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
StepArray: TypeAlias = npt.NDArray[np.int64]
MaskArray: TypeAlias = npt.NDArray[np.bool_]

RECOVERED_POINTS = 10
"""Finite points at the end after which a series counts as recovered. Ours."""

RECOVERED_SHARE = 0.05
"""Largest share of points that are not finite in a recovered series. Ours."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The points of one metric in order of steps; both arrays have shape (points,). Values may be NaN or infinite."""

    name: str
    steps: StepArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def span_steps(self) -> int:
        """Steps covered from the first to the last point, both counted; 0 if there is none."""
        return int(self.steps[-1] - self.steps[0]) + 1 if len(self) else 0

    @property
    def first_bad_step(self) -> int | None:
        """The first step whose value is NaN or infinite."""
        bad = np.flatnonzero(~np.isfinite(self.values))
        return int(self.steps[bad[0]]) if len(bad) else None

    @property
    def recovered(self) -> bool:
        """Whether the values that are not finite are few and lie behind: training went on as before."""
        bad = ~np.isfinite(self.values)
        few = np.count_nonzero(bad) <= RECOVERED_SHARE * len(bad)
        return bool(few) and len(bad) > RECOVERED_POINTS and not bad[-RECOVERED_POINTS:].any()

    def sound(self) -> Series:
        """The part before the first NaN or infinity, or all but those points if the series recovered from them."""
        finite = np.isfinite(self.values)
        if finite.all():
            return self
        if self.recovered:
            return Series(self.name, self.steps[finite], self.values[finite])
        return self[: int(np.argmin(finite))]

    def since(self, first_step: int) -> Series:
        """The part from `first_step` on."""
        return self[int(np.searchsorted(self.steps, first_step)) :]

    def scaled(self, factor: float) -> Series:
        """The same points in another unit."""
        return self if factor == 1.0 else Series(self.name, self.steps, self.values * factor)

    def __getitem__(self, part: slice) -> Series:
        return Series(self.name, self.steps[part], self.values[part])


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values of shape (rows,); `present` marks the rows that logged the metric, None if all did."""

    values: FloatArray
    present: MaskArray | None = None

    def at(self, row: int) -> float | None:
        """The value logged in the row, None if it logged none."""
        return float(self.values[row]) if self.present is None or self.present[row] else None


@dataclass(frozen=True, slots=True, eq=False)
class MetricTable:
    """Rows by strictly rising step, columns by metric name.

    `low_precision` names columns whose zeros may be rounded: the log printed so few decimals that a small number
    reads 0.000.
    """

    steps: StepArray
    columns: Mapping[str, Column]
    low_precision: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, Mapping[str, float]]]) -> MetricTable:
        """The table of (step, metrics) rows in any order; a later mention of the same step and metric wins."""
        merged: dict[int, dict[str, float]] = {}
        for step, metrics in rows:
            merged.setdefault(int(step), {}).update(metrics)
        steps = sorted(merged)
        names = dict.fromkeys(name for step in steps for name in merged[step])
        columns = {}
        for name in names:
            values = np.array([merged[s].get(name, math.nan) for s in steps], dtype=np.float64)
            present = np.array([name in merged[s] for s in steps])
            columns[name] = Column(values, None if present.all() else present)
        return cls(np.array(steps, dtype=np.int64), columns)

    def __len__(self) -> int:
        return len(self.steps)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """Metric names in the order of their first appearance."""
        return tuple(self.columns)

    @property
    def span_steps(self) -> int:
        """Steps covered from the first to the last row, both counted; 0 for an empty table."""
        return int(self.steps[-1] - self.steps[0]) + 1 if len(self) else 0

    def series(self, name: str) -> Series | None:
        """The logged points of the metric; None if the run never logged it."""
        column = self.columns.get(name)
        if column is None:
            return None
        if column.present is None:
            return Series(name, self.steps, column.values)
        return Series(name, self.steps[column.present], column.values[column.present])

    def last_steps(self, count: int) -> MetricTable:
        """The rows of the last `count` steps, counted by step number and not by row."""
        if not len(self):
            return self
        start = int(np.searchsorted(self.steps, self.steps[-1] - count + 1))
        columns = {
            name: Column(c.values[start:], None if c.present is None else c.present[start:])
            for name, c in self.columns.items()
        }
        return MetricTable(self.steps[start:], columns, self.low_precision)

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Each step with what it logged; zeros that may be rounded are included."""
        for row, step in enumerate(self.steps):
            found = {name: column.at(row) for name, column in self.columns.items()}
            yield int(step), {name: value for name, value in found.items() if value is not None}
