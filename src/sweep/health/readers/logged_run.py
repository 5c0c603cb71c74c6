"""`LoggedRun`: one run as a log tells it, with what the reader noticed on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sweep.health.metric_table import MetricTable
from sweep.health.table_builder import TableBuilder


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRun:
    """A table, its label among the runs of the same file, notes on damage, and the configuration if the log has it."""

    label: str
    table: MetricTable
    notes: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


def target(builders: list[TableBuilder], step: int, names: Iterable[str]) -> TableBuilder:
    """The builder that the row belongs to: one that tells the very first step once more is another run's."""
    current = builders[-1] if builders else None
    if current is None or (step == current.first_step and len(current) > 1 and current.repeats(step, names)):
        builders.append(TableBuilder())
    return builders[-1]


def finish_all(label: str, builders: Sequence[TableBuilder], notes: tuple[str, ...] = ()) -> list[LoggedRun]:
    """The runs of the builders that hold rows, numbered if there are several."""
    full = [b for b in builders if len(b)]
    return [finish(label if len(full) == 1 else f"{label} run {n}", b, notes) for n, b in enumerate(full, 1)]


def finish(label: str, builder: TableBuilder, notes: tuple[str, ...] = ()) -> LoggedRun:
    """The run that the builder collected; resumptions and repeated steps become notes."""
    told = list(notes)
    if builder.rewound_to:
        places = ", ".join(str(s) for s in builder.rewound_to[:5])
        told.append(f"resumed at step {places}: the later account of each step is used")
    if builder.repeated_rows:
        told.append(f"{builder.repeated_rows} steps were logged twice in a row: the later values are used")
    table = builder.finish()
    if table.low_precision:
        told.append(
            f"{len(table.low_precision)} metrics were printed with so few decimals that 0.000 need not be 0: "
            + ", ".join(sorted(table.low_precision)[:5])
        )
    return LoggedRun(label, table, tuple(told))
