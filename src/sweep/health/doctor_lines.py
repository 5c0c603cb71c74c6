"""One line of a console log without its wrapping: `strip_prefixes`, `supposed`, `raised_type`, `frame_name`.

Ray, vLLM, torch and terminals each put something in front of a line; a cause is recognised behind all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

RAY_PREFIX = re.compile(r"\((?P<name>[^()\s]+)(?: rank=\d+)? pid=(?P<pid>\d+)(?:, ip=[\w.:]+)?\)\s?")
"""What Ray and vLLM put in front of another process's line, once or several times."""

LOG_PREFIX = re.compile(
    r"(?:\((?:raylet|gcs_server|autoscaler)[^()]*\)\s?"
    r"|\[rank\d+\]:\[\w[^\]]*\]\s?"
    r"|\[?rank ?\d+\]?:\s?"
    r"|(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL|FATAL)"
    r"(?::\S+:|\s+\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\s*(?:\[[^\]]*\]\s?|\S+:\d+\]\s?)?)\s?"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z] \d+ \d+)?\]?"
    r"(?:\s*[-|]?\s*(?:ERROR|WARNING|INFO|DEBUG)\b)?[:\s|-]*"
    r"|\[?[A-Z]\d{3,4} \d\d:\d\d:\d\d[^\]]*\]\s?"
    r"|[\w.-]+\s+\|\s)"
)
"""What torch, logging and container tools put in front of a line."""

MILD = re.compile(r"\b(?:WARNING|WARN|INFO|DEBUG)\b|^\[?(?:rank\d+\]:\[)?[WI]\d{3,4} |\d [WID] \d+ \d+\]")
"""How a prefix calls its line a warning or less: by a word, or as glog and Ray do by a letter."""

WARNS = re.compile(r"(?:\S+:\d+: )?(?:\w*Warning|WARNING|DEBUG)\b|[\w.-]+: (?:WARNING|WARN|INFO|DEBUG)\b")
"""How a line without such a prefix says it: Python's `file.py:12: UserWarning`, `wandb: WARNING`."""

SUPPOSED = re.compile(
    r"(?i)\b(?:can|may|might|could|would|will)(?:\s+\w+)?\s+(?:cause|lead|result|fail|run|hit|raise|trigger|see|get)\b"
    r"|\berrors? (?:like|such as)\b|\b(?:to|can) (?:avoid|prevent)\b|\bin case\b"
    r"|\bif you (?:see|get|hit|run|meet|encounter)\b"
)
"""Words after which a line speaks of an error that has not happened."""

SENTENCE_END = re.compile(r"[.;!?]\s")

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
    return Line(text, process, mild or WARNS.match(text) is not None)


def supposed(text: str, place: int) -> bool:
    """Whether what stands at a place of the line is only spoken of: it has not happened, and perhaps never will."""
    ends = [end.end() for end in SENTENCE_END.finditer(text, 0, place)]
    return SUPPOSED.search(text, ends[-1] if ends else 0, place) is not None


def raised_type(text: str) -> str | None:
    """The type of the exception that the line names, with a mark if it only wraps another; None if it names none."""
    found = RAISED.match(text)
    return found["type"] + (found["wrapped"] or "") if found else None


def frame_name(text: str) -> str | None:
    """The function that the line says was running: in a stack frame, or as the target of a Ray call."""
    found = FRAME.match(text) or RAY_CALL.search(text)
    return found["name"] if found else None
