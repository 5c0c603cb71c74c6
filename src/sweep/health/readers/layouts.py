"""`Layouts`: reads step lines whose metrics have been seen in the same order before, several times faster.

A run logs the same metrics step after step. The first line of an order is read part by part; what it says about
names and brackets then reads the next ones by position. A line that does not fit is read part by part again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sweep.health.readers.step_line import SEPARATOR, StepRow, is_rounded_zero, parse

MOST_LAYOUTS = 4
"""Orders remembered: with and without validation, and their changes when a run is resumed."""

PLAIN_ZEROS = frozenset({"0", "0.0", "-0.0"})
"""Zeros as Python prints them: they are exact."""

_STEP = re.compile(r"step:(-?\d{1,12})\Z")
_WRAPPER = re.compile(r"(?:np|numpy)\.\w+\((?=[^()]+\)\Z)")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Names in order; each part is a known beginning, a number, and one closing bracket where `wrapped` says so."""

    names: tuple[str, ...]
    beginnings: list[str]
    starts: list[int]
    ends: list[int | None]
    wrapped: list[int]


class Layouts:
    """Remembers the latest orders of metrics; `read` is all it does."""

    def __init__(self) -> None:
        self._known: list[_Layout] = []

    def read(self, line: str) -> StepRow | None:
        """The row of a line that begins with `step:`, as `step_line.parse` reads it."""
        head, *parts = line.rstrip().split(SEPARATOR)
        step = _STEP.match(head)
        for place, layout in enumerate(self._known):
            row = _fast(int(step[1]), parts, layout) if step and len(parts) == len(layout.names) else None
            if row is not None:
                if place:
                    self._known.insert(0, self._known.pop(place))
                return row
        row = parse(line)
        if row is not None and not row.cut and len(row.names) == len(parts):
            self._learn(row.names, parts)
        return row

    def _learn(self, names: tuple[str, ...], parts: list[str]) -> None:
        """Remember the order, if each part is plainly a name, a colon and a number, in brackets or not."""
        if not all(part.startswith(f"{name}:") for name, part in zip(names, parts, strict=True)):
            return
        wrappers = [_WRAPPER.match(part, len(name) + 1) for name, part in zip(names, parts, strict=True)]
        beginnings = [f"{n}:{w[0] if w else ''}" for n, w in zip(names, wrappers, strict=True)]
        layout = _Layout(
            names,
            beginnings,
            [len(b) for b in beginnings],
            [-1 if w else None for w in wrappers],
            [n for n, w in enumerate(wrappers) if w],
        )
        self._known.insert(0, layout)
        del self._known[MOST_LAYOUTS:]


def _fast(step: int, parts: list[str], layout: _Layout) -> StepRow | None:
    """The row, if every part begins as the layout says and has a number where it says."""
    starts = layout.starts
    if [part[:start] for part, start in zip(parts, starts, strict=True)] != layout.beginnings:
        return None
    if not all(parts[n].endswith(")") for n in layout.wrapped):
        return None
    texts = [part[start:end] for part, start, end in zip(parts, starts, layout.ends, strict=True)]
    try:
        values = list(map(float, texts))
    except ValueError:
        return None
    rounded = []
    if 0.0 in values:
        zeros = [n for n, value in enumerate(values) if value == 0 and texts[n] not in PLAIN_ZEROS]
        rounded = [layout.names[n] for n in zeros if is_rounded_zero(texts[n])]
    return StepRow(step, layout.names, values, rounded, 0)
