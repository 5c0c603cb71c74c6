"""One line of a console log without its wrapping: `strip_prefixes`, `raised_type`, `frame_name`.

Ray, vLLM, torch and terminals each put something in front of a line; a cause is recognised behind all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

RAY_PREFIX = re.compile(r"\((?P<name>[^()\s]+)(?: rank=\d+)? pid=(?P<pid>\d+)(?:, ip=[\w.:]+)?\)\s?")
"""What Ray and vLLM put in front of another process's line, once or several times."""

LOG_PREFIX = re.compile(
    r"(?:\[rank\d+\]:\[\w[^\]]*\]\s?"
    r"|\[?rank ?\d+\]?:\s?"
    r"|(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL|FATAL)"
    r"(?::\S+:|\s+\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\s*(?:\[[^\]]*\]\s?|\S+:\d+\]\s?)?)\s?"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?:\s*-?\s*(?:ERROR|WARNING|INFO|DEBUG))?[:\s-]*"
    r"|[\w.-]+\s+\|\s)"
)
"""What torch, logging and container tools put in front of a line."""

MILD = re.compile(r"\b(?:WARNING|WARN|INFO|DEBUG)\b")

REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")

RAISED = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Fault|MandatoryValue|Invalid))"
    r"(?P<wrapped>\(\w+\))?(?::\s|:?$)"
)
"""The line in which Python names an exception at the end of a traceback."""

FRAME = re.compile(r'^\s*(?:File ".*", line \d+, )?in (?P<name>\w+)')
RAY_CALL = re.compile(r"\bray::(?P<name>[\w.]+)\(")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without prefixes, the process it came from (empty for the driver's own), and if it is no error.

    `mild` is true of a line that its logger calls a warning or less.
    """

    text: str
    process: str
    mild: bool = False


def strip_prefixes(raw: str) -> Line:
    """The line without colours, process names, time stamps and Ray's note on repetitions."""
    text = ANSI.sub("", raw) if "\x1b" in raw else raw
    text, process, mild = text.rstrip(), "", False
    for _ in range(4):  # a vLLM process inside a Ray actor inside a container: three, and one to spare
        found = RAY_PREFIX.match(text) or LOG_PREFIX.match(text)
        if found is None or found.end() == 0:
            break
        process = process or found.groupdict().get("pid") or ""
        mild = mild or MILD.search(found[0]) is not None
        text = text[found.end() :]
    if "[repeated" in text:
        text = REPEATED.sub("", text)
    return Line(text, process, mild or text.startswith(("WARNING", "UserWarning", "DEBUG")))


def raised_type(text: str) -> str | None:
    """The type of the exception that the line names, with a mark if it only wraps another; None if it names none."""
    found = RAISED.match(text)
    return found["type"] + (found["wrapped"] or "") if found else None


def frame_name(text: str) -> str | None:
    """The function that the line says was running: in a stack frame, or as the target of a Ray call."""
    found = FRAME.match(text) or RAY_CALL.search(text)
    return found["name"] if found else None
