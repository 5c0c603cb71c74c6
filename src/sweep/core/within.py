"""`Within`: the numbers that a setting may hold, beside a field as in `Annotated[int, Within(low=1)]`; `require`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Within:
    """`low` to `high`; an `open` end is not itself included. NaN lies in no range."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value lies in the range."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        """The range in words, to follow "must be"."""
        ends = []
        if math.isfinite(self.low):
            ends.append(f"{'above' if self.open_low else 'at least'} {self.low:.12g}")
        if math.isfinite(self.high):
            ends.append(f"{'below' if self.open_high else 'at most'} {self.high:.12g}")
        return " and ".join(ends) or "any number"


def require(name: str, value: float | None, within: Within, aside: str = "") -> None:
    """Returns if the setting of this name is a finite number in the range, or not given.

    `aside` says what else would do.

    Raises:
        ConfigError: otherwise.
    """
    if value is not None and not (within.holds(value) and math.isfinite(value)):
        raise ConfigError(f"{name} must be {within}{aside}, got {value:.12g}")
