"""verl's console log: `read_console` finds the `step:N - metric:value - ...` lines in anything around them.

Around them: colour codes, Ray's `(Task pid=7, ip=...)` prefixes and `[repeated 3x across cluster]`, progress bars on
the same line, several processes at once, lines that were wrapped at some width, numbers printed as `np.float64(0.5)`.
Values are taken as printed; a zero with three decimals (verl before 0.3) is marked as rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sweep.errors import ConfigError
from sweep.health.readers.layouts import Layouts
from sweep.health.readers.logged_run import LoggedRun, finish_all, target
from sweep.health.readers.step_line import complete, joins, starts_at
from sweep.health.table_builder import TableBuilder

PATIENCE_LINES = 20
"""Lines of noise after which a wrapped line is no longer waited for. Ours."""

HEAD_LENGTH = 400
"""Where in a line a process prefix is looked for. Ours: a progress bar may stand before it."""

_ANSI = re.compile(r"\x1b?\[[0-9;]*m")
_PREFIX = re.compile(r"\(([A-Za-z_][\w.:]*) pid=(\d+)(?:, ip=[^)]{1,60})?\)")
_COLORED_PREFIX = re.compile(r"\([A-Za-z_][\w.:]* pid=\d+(?:, ip=[^)]{1,60})?\)(?:\x1b?\[[0-9;]*m)* ?")
_REPEATED = re.compile(r" ?\[repeated \d+x across (?:the )?cluster\].*$")


@dataclass(slots=True)
class _Process:
    """What one process has logged: finished rows, and the line that may go on."""

    runs: list[TableBuilder] = field(default_factory=list)
    open_line: str = ""
    patience: int = 0
    last_seen: int = 0
    first_seen: int = 0
    cut_lines: int = 0


class ConsoleReader:
    """Takes lines one by one; `runs` closes it. Needs memory for the values only."""

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}
        self._waiting = 0
        self._broken_off = False
        self._latest = ""
        self._line_number = 0
        self._layouts = Layouts()

    def feed(self, line: bytes) -> None:
        """Take the next line of the log."""
        self._line_number += 1
        if b"step:" not in line:
            if not self._waiting:
                return
            self._waiting -= 1
            if not self._broken_off and b"- " not in line and self._waiting < PATIENCE_LINES - 1:
                return
        name, text = _unwrap(line)
        start = starts_at(text)
        if start is not None:
            self._open(name, text[start:])
        elif self._waiting and text:
            self._go_on(name, text)

    def runs(self) -> list[LoggedRun]:
        """The runs found, in order of their first line; a process that continues another one's run is joined to it."""
        for process in self._processes.values():
            self._close(process)
        found = [(name, p) for name, p in self._processes.items() if p.runs]
        return [
            run
            for name, process in _resumed(found)
            for run in finish_all(name or "console", process.runs, _notes(process))
        ]

    def _open(self, name: str, text: str) -> None:
        process = self._processes.setdefault(name, _Process(first_seen=self._line_number))
        self._close(process)
        self._latest = name
        self._hold(process, text)

    def _hold(self, process: _Process, text: str) -> None:
        process.open_line = text
        process.last_seen = self._line_number
        process.patience = self._line_number + PATIENCE_LINES
        self._waiting = PATIENCE_LINES
        self._broken_off = not complete(text)

    def _go_on(self, name: str, text: str) -> None:
        """Append a continuation to its process's open line, if it fits there.

        A terminal that wraps a line repeats no prefix: such a piece belongs to the line before it.
        """
        process = self._processes.get(name)
        if name == "" and (process is None or not process.open_line):
            process = self._processes.get(self._latest)
        if process is None or not process.open_line or self._line_number > process.patience:
            return
        joined = joins(process.open_line, text, self._line_number == process.patience - PATIENCE_LINES + 1)
        if joined is not None:
            self._hold(process, joined)

    def _close(self, process: _Process) -> None:
        if not process.open_line:
            return
        row = self._layouts.read(process.open_line)
        process.open_line = ""
        if row is None:
            process.cut_lines += 1
            return
        builder = target(process.runs, row.step, row.names)
        for metric in row.rounded:
            builder.mark_rounded(metric)
        builder.add(row.step, row.names, row.values)
        process.cut_lines += row.cut


def read_console(lines: Iterable[bytes]) -> list[LoggedRun]:
    """The runs in the lines of a console log.

    Raises:
        ConfigError: no line is a step of a run.
    """
    reader = ConsoleReader()
    for line in lines:
        reader.feed(line)
    runs = reader.runs()
    if not runs:
        raise ConfigError(
            "no line of the form 'step:12 - actor/grad_norm:0.41 - ...' was found; "
            "for a log that ends in an error use python -m sweep.doctor"
        )
    return runs


def _unwrap(line: bytes) -> tuple[str, str]:
    """The process that wrote the line, empty if unknown, and the text without prefix and colours."""
    text = line.decode("utf-8", "replace")
    head = text[:HEAD_LENGTH]
    if "pid=" in head:
        prefix = _PREFIX.search(_ANSI.sub("", head))
        colored = _COLORED_PREFIX.search(head)
        if prefix is not None and colored is not None:
            return f"{prefix[1]} pid={prefix[2]}", _plain(text[colored.end() :])
    return "", _plain(text)


def _plain(text: str) -> str:
    """The text without colours and without Ray's remark on repeated lines."""
    if "\x1b" in text or "[0m" in text:
        text = _ANSI.sub("", text)
    return _REPEATED.sub("", text) if "[repeated" in text else text


def _resumed(found: list[tuple[str, _Process]]) -> list[tuple[str, _Process]]:
    """The processes, with one that starts after another has ended and goes on from its steps joined to it."""
    joined: list[tuple[str, _Process]] = []
    for name, process in sorted(found, key=lambda pair: pair[1].first_seen):
        before = joined[-1][1] if joined else None
        if before is not None and _goes_on(before, process):
            before.runs[-1].extend(process.runs[0].finish())
            before.runs.extend(process.runs[1:])
            before.last_seen = process.last_seen
            before.cut_lines += process.cut_lines
            continue
        joined.append((name, process))
    return joined


def _goes_on(before: _Process, after: _Process) -> bool:
    first, last, start = after.runs[0].first_step, before.runs[-1].last_step, before.runs[-1].first_step
    if first is None or last is None or start is None:
        return False
    return after.first_seen > before.last_seen and start < first <= last + 1


def _notes(process: _Process) -> tuple[str, ...]:
    return (f"{process.cut_lines} step lines were cut off: their last value is lost",) if process.cut_lines else ()
