"""`Evidence`: all that a curve rule may look at: the table, what else is known about the run, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.health.limits import DEFAULT, Limits
from sweep.health.metric_names import Measured, Quantity, find, validation
from sweep.health.metric_table import MetricTable, Series


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known about a run beside its curves; everything may be missing.

    `config` maps dotted verl keys to values, `units` metric names to a text about their unit.
    """

    config: Mapping[str, object] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    gpu_total_gib: float | None = None
    host_total_gib: float | None = None
    save_interval_steps: int | None = None
    dataset_rows: int | None = None
    wanted_steps: int | None = None

    def number(self, key: str) -> float | None:
        """The setting as a number; None if it is unknown or not a number. Text counts if it reads as a number."""
        value = self.config.get(key)
        try:
            return None if value is None or isinstance(value, bool) else float(str(value))
        except ValueError:
            return None

    def flag(self, key: str) -> bool | None:
        """The setting as a switch; None if it is unknown. Trackers store switches as text."""
        value = self.config.get(key)
        return {"true": True, "false": False}.get(str(value).casefold())


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One run; `window` is the part that the screen judges, `table` the whole."""

    table: MetricTable
    window: MetricTable
    facts: RunFacts
    limits: Limits

    @classmethod
    def of(cls, table: MetricTable, facts: RunFacts | None = None, limits: Limits = DEFAULT) -> Evidence:
        """The evidence of a run with the window cut to `limits.window_steps`."""
        return cls(table, table.last_steps(limits.window_steps), facts or RunFacts(), limits)

    def measured(self, quantity: Quantity) -> Measured | None:
        """The quantity over the whole run, cut before its first NaN; None if nothing sound was logged."""
        return self._sound(find(self.table, quantity, self.facts.units))

    def recent(self, quantity: Quantity) -> Measured | None:
        """The quantity over the window, cut before its first NaN; None if nothing sound is left there."""
        return self._sound(find(self.window, quantity, self.facts.units))

    def series(self, quantity: Quantity) -> Series | None:
        """The points of `measured`."""
        found = self.measured(quantity)
        return found.series if found else None

    def recent_series(self, quantity: Quantity) -> Series | None:
        """The points of `recent`."""
        found = self.recent(quantity)
        return found.series if found else None

    def validation(self) -> Series | None:
        """The headline validation metric, cut before its first NaN."""
        series = validation(self.table)
        return series.sound() if series is not None else None

    def logged(self, quantity: Quantity) -> bool:
        """Whether the run logged the quantity at all, sound or not."""
        return find(self.table, quantity) is not None

    def rounded(self, name: str) -> bool:
        """Whether zeros of this column may be small numbers printed with too few decimals."""
        return name in self.table.low_precision

    @staticmethod
    def _sound(found: Measured | None) -> Measured | None:
        if found is None:
            return None
        series = found.series.sound()
        return Measured(found.quantity, found.unit, series) if len(series) else None
