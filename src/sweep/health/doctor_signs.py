"""What a pass over a log keeps: `Hit`, `Raised`, `Scan`, and how numbers get into a hit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sweep.health.doctor_catalog import Failure, Kind


@dataclass(slots=True)
class Hit:
    """A line in which a known failure shows; `steps_seen` counts the steps logged before it.

    `mild`: the line's own logger calls it a warning or less.
    """

    failure: Failure
    line_number: int
    text: str
    process: str
    steps_seen: int
    after_end: bool
    last_line: int
    kind: Kind
    mild: bool = False
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
    """What one pass over a log found; `harmless` are types of exceptions that training survived before."""

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
    harmless: set[str] = field(default_factory=set)


def survived(steps_then: int, steps_now: int) -> bool:
    """Whether training went on after an event: two steps later it was not what the run died of.

    One step is not enough: Ray forwards the lines of other processes late.
    """
    return steps_now - steps_then >= 2


def read_details(hit: Hit, text: str) -> None:
    """Add the numbers that the text holds for the hit; those found first stay."""
    for pattern in hit.failure.details:
        for name, value in named_numbers(pattern.search(text)).items():
            if name.startswith("each_"):
                kept = hit.computed.setdefault(name.removeprefix("each_"), [])
                if isinstance(kept, list) and value not in kept:
                    kept.append(value)
            else:
                hit.computed.setdefault(name, value)


def named_numbers(match: re.Match[str] | None) -> dict[str, object]:
    """The match's named groups, numerals as numbers."""
    if match is None:
        return {}
    return {name: as_number(value) for name, value in match.groupdict().items() if value is not None}


def as_number(text: str) -> object:
    """The text as a number if it is one."""
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value == int(value) and "." not in text else value
