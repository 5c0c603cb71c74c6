"""`Share`: a counted share with its 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `count`; Wilson's interval, which is honest near 0 and 1."""

    hits: int
    count: int

    @classmethod
    def of(cls, claims: Iterable[bool]) -> Share:
        """The share of claims that hold."""
        seen = [bool(c) for c in claims]
        return cls(sum(seen), len(seen))

    @property
    def value(self) -> float:
        return self.hits / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return math.nan, math.nan
        z, n, p = 1.959964, self.count, self.value
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        reach = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - reach), min(1.0, middle + reach)

    def to_json(self) -> dict[str, float | int]:
        low, high = self.interval
        return {"value": round(self.value, 4), "low": round(low, 4), "high": round(high, 4), "count": self.count}

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:6.1%} ({low:.1%} to {high:.1%})"
