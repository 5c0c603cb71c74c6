"""What a pass over a log keeps: `Hit`, `Raised`, `Scan`."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweep.health.doctor_catalog import Failure


@dataclass(slots=True)
class Hit:
    """A line in which a known failure shows; `steps_seen` counts the steps logged before it."""

    failure: Failure
    line_number: int
    text: str
    process: str
    steps_seen: int
    after_end: bool
    last_line: int
    computed: dict[str, object] = field(default_factory=dict)
    frames: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Raised:
    """A line that names an exception."""

    type_name: str
    line_number: int
    text: str
    process: str
    steps_seen: int
    after_end: bool


@dataclass(slots=True)
class Scan:
    """What one pass over a log found."""

    hits: list[Hit] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    lines: int = 0
    characters: int = 0
    steps_seen: int = 0
    last_step: int = 0
    total_steps: int | None = None
    ended: bool = False
    saving_step: int | None = None
    saved_steps: set[int] = field(default_factory=set)
    starting: bool = False
    settings: dict[str, float] = field(default_factory=dict)


def survived(steps_then: int, steps_now: int) -> bool:
    """Whether training went on after an event: two steps later it was not what the run died of.

    One step is not enough: Ray forwards the lines of other processes late.
    """
    return steps_now - steps_then >= 2
