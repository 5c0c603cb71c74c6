"""`Layouts`: reads step lines whose metrics have been seen in the same order before, several times faster.

A run logs the same metrics step after step. The first line of an order is read part by part; it becomes a pattern
that reads the next ones in one go. A line that does not fit any pattern is read part by part again.
"""

from __future__ import annotations

import re

from sweep.health.readers.step_line import SEPARATOR, StepRow, parse

MOST_LAYOUTS = 4
"""Orders remembered: with and without validation, and their changes when a run is resumed."""

PLAIN_ZEROS = frozenset({"0", "0.0", "-0.0"})
"""Zeros as Python prints them: they are exact."""

_WRAPPED = r"(?:(?:np|numpy)\.\w+\()?([^\s()]+)\)?"


class Layouts:
    """Remembers the latest orders of metrics; `read` is all it does."""

    def __init__(self) -> None:
        self._known: list[tuple[re.Pattern[str], tuple[str, ...]]] = []

    def read(self, line: str) -> StepRow | None:
        """The row of a line that begins with `step:`, as `step_line.parse` reads it."""
        for place, (pattern, names) in enumerate(self._known):
            found = pattern.fullmatch(line)
            row = self._fast(found, names) if found is not None else None
            if row is not None:
                if place:
                    self._known.insert(0, self._known.pop(place))
                return row
        row = parse(line)
        if row is not None and not row.cut and len(row.names) == line.count(SEPARATOR):
            self._learn(row.names)
        return row

    def _fast(self, found: re.Match[str], names: tuple[str, ...]) -> StepRow | None:
        step, *texts = found.groups()
        try:
            values = list(map(float, texts))
        except ValueError:
            return None
        rounded = []
        if 0.0 in values:
            zeros = [n for n, value in enumerate(values) if value == 0 and texts[n] not in PLAIN_ZEROS]
            rounded = [names[n] for n in zeros if re.fullmatch(r"[-+]?0\.0{2,4}", texts[n])]
        return StepRow(int(step), names, values, rounded, 0)

    def _learn(self, names: tuple[str, ...]) -> None:
        body = SEPARATOR.join(f"{re.escape(name)}:{_WRAPPED}" for name in names)
        self._known.insert(0, (re.compile(rf"step:(-?\d{{1,12}}){SEPARATOR}{body}\s*"), names))
        del self._known[MOST_LAYOUTS:]
