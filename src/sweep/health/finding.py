"""`Finding` and what it is made of: `Severity`, `Confidence`, `Move`. Values only; the rules are elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sweep.health.code import Code


class Severity(Enum):
    """How much a finding matters to the run it is about."""

    INFO = "info"
    """Worth knowing; nothing to change."""
    WARN = "warn"
    """The run goes on, but not as it could."""
    ERROR = "error"
    """The run's result is in doubt; change something before the next one."""
    CRITICAL = "critical"
    """The run is lost: every further step is wasted."""

    @property
    def rank(self) -> int:
        """0 for info up to 3 for critical."""
        return list(Severity).index(self)


class Confidence(Enum):
    """How sure a rule is of what it says, given how much it saw."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Way(Enum):
    """What to do with a setting."""

    RAISE = "raise"
    LOWER = "lower"
    SET = "set"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Move:
    """One change that should help: which setting, which way, and to what or within which bounds."""

    way: Way
    knob: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.way.value} {self.knob}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing seen in a run: where, how sure, what it means and what to change.

    `direction` holds alternatives, the likeliest first. `figures` are the numbers behind `seen`, by name with unit.
    """

    code: Code
    severity: Severity
    metric: str
    first_step: int | None
    last_step: int | None
    seen: str
    confidence: Confidence = Confidence.HIGH
    advice: str = ""
    direction: tuple[Move, ...] = ()
    source: str = ""
    figures: tuple[tuple[str, float], ...] = ()

    @property
    def scope(self) -> str:
        """The part of training the metric belongs to: its first path component, or the metric itself."""
        return self.metric.split("/", 1)[0]

    @property
    def steps(self) -> str:
        """The steps concerned, as `59`, `59-61`, or nothing."""
        if self.first_step is None:
            return ""
        if self.last_step is None or self.last_step == self.first_step:
            return str(self.first_step)
        return f"{self.first_step}-{self.last_step}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; figures that are not finite become text, as JSON has no number for them."""
        return {
            "code": self.code.name,
            "severity": self.severity.value,
            "metric": self.metric,
            "scope": self.scope,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "seen": self.seen,
            "confidence": self.confidence.value,
            "advice": self.advice,
            "direction": [{"way": m.way.value, "knob": m.knob, "detail": m.detail} for m in self.direction],
            "source": self.source,
            "figures": {k: v if math.isfinite(v) else str(v) for k, v in self.figures},
        }
