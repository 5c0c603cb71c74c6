"""One `step:N - metric:value - ...` line: where it starts, whether another line goes on with it, what it says."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

SEPARATOR = " - "
_START = re.compile(r"(?<![\w/.])step:(-?\d{1,12})(?= -|\s*$)")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_VALUE = re.compile(rf"(?:(?:np|numpy|torch|jnp)\.\w+\(|tensor\()?({_NUMBER})", re.IGNORECASE)
_NAME = re.compile(r"[^\W\d][^\x00-\x1f\x7f\ufffd]{0,199}\Z")
_CONTINUATION = re.compile(r"^[^\s:]{0,120}(?::\S*)?(?: -(?: [^\s:]{1,120}:\S+)?)*\s*$")
_REST_OF_VALUE = re.compile(r"[\d.eE+\-]*\)?\Z")
_ROUNDED_ZERO = re.compile(r"[-+]?0\.0{2,4}\Z")


class Tokens(dict[str, str]):
    """Metric names that have been seen and are sound, so that each is checked and stored once."""

    def __missing__(self, name: str) -> str:
        stripped = name.strip()
        self[name] = stripped if _NAME.match(stripped) else ""
        return self[name]


@dataclass(frozen=True, slots=True)
class StepRow:
    """What a line says; `rounded` names metrics whose zero may be rounded, `cut` is 1 if its end is missing."""

    step: int
    pairs: list[tuple[str, float]]
    rounded: list[str]
    cut: int


def starts_at(text: str) -> int | None:
    """Where in the text a step line begins; None if it holds none (`global_step:12` is none)."""
    found = _START.search(text)
    return found.start() if found else None


def parse(line: str, tokens: Tokens) -> StepRow | None:
    """The row of a line that begins with `step:`; None if not even the step can be read."""
    parts = line.split(SEPARATOR)
    start = _START.match(parts[0].rstrip(" -") + " -")
    if start is None:
        return None
    pairs: list[tuple[str, float]] = []
    rounded: list[str] = []
    lost = 0
    for part in parts[1:]:
        name, _, text = part.rpartition(":")
        try:
            value = float(text)
        except ValueError:
            name, value = _slow_pair(part)
        name = tokens[name]
        if not name:
            lost += 1
            continue
        if value == 0 and len(text) > 3 and _ROUNDED_ZERO.match(text.strip()):
            rounded.append(name)
        pairs.append((name, value))
    return StepRow(int(start[1]), pairs, rounded, 1 if lost else 0)


def _slow_pair(part: str) -> tuple[str, float]:
    """Name and number of a pair that is not plainly `name:number`; an empty name if it is none."""
    for split in (part.rpartition, part.partition):
        name, _, text = split(":")
        value = value_of(text)
        if value is not None:
            return name, value
    return "", math.nan


def value_of(text: str) -> float | None:
    """The number a value was printed as; None if there is none, or if it was cut inside its brackets."""
    found = _VALUE.match(text.strip())
    if found is None or (found.start(1) > 0 and not found.string[found.end() :].startswith((")", ","))):
        return None
    return float(found[1])


def joins(line: str, more: str) -> str | None:
    """The line with its continuation, or None if the text does not go on with it.

    A wrapped line breaks anywhere, also within a name or a number; wrapping may have eaten the spaces at the break.
    """
    body = more.rstrip()
    if not body or not _CONTINUATION.match(body.strip()):
        return None
    if line.rstrip().endswith(" -") or body.startswith((" - ", "- ")):
        return f"{line.rstrip()} {body.lstrip()}"
    last = line.rsplit(SEPARATOR, 1)[-1]
    complete = ":" in last and value_of(last.rpartition(":")[2]) is not None
    if SEPARATOR not in body and (complete or not (":" in body or _REST_OF_VALUE.match(body))):
        return None
    joined = line + body
    tail = joined[len(line) - len(last) :].split(SEPARATOR)
    return joined if all(_sound(part) for part in tail[:-1]) else None


def _sound(part: str) -> bool:
    """Whether the part is a name and nothing but a value."""
    name, _, text = part.rpartition(":")
    found = _VALUE.match(text)
    return bool(_NAME.match(name.strip())) and found is not None and text[found.end() :].strip() in ("", ")")
