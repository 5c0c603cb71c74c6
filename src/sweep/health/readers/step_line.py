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


@dataclass(frozen=True, slots=True)
class StepRow:
    """What a line says; `rounded` names metrics whose zero may be rounded, `cut` is 1 if its end is missing."""

    step: int
    names: tuple[str, ...]
    values: list[float]
    rounded: list[str]
    cut: int


def starts_at(text: str) -> int | None:
    """Where in the text a step line begins; None if it holds none (`global_step:12` is none)."""
    found = _START.search(text)
    return found.start() if found else None


def parse(line: str) -> StepRow | None:
    """The row of a line that begins with `step:`; None if not even the step can be read."""
    parts = line.split(SEPARATOR)
    start = _START.match(parts[0].rstrip(" -") + " -")
    if start is None:
        return None
    metrics: dict[str, float] = {}
    rounded: list[str] = []
    lost = 0
    for part in parts[1:]:
        name, value, text = _pair(part)
        if not name:
            lost = 1
            continue
        metrics[name] = value
        if value == 0 and is_rounded_zero(text):
            rounded.append(name)
    return StepRow(int(start[1]), tuple(metrics), list(metrics.values()), rounded, lost)


def _pair(part: str) -> tuple[str, float, str]:
    """Name, number and printed number of a pair; an empty name if it is none."""
    for split in (part.partition, part.rpartition):
        name, _, text = split(":")
        value = value_of(text)
        if value is not None and _NAME.match(name.strip()):
            return name.strip(), value, text
    return "", math.nan, ""


def value_of(text: str) -> float | None:
    """The number a value was printed as; None if there is none, or if it was cut inside its brackets.

    A progress bar may follow on the same line; what goes on like a name (`1/acc`) is no number.
    """
    found = _VALUE.match(text.strip())
    if found is None:
        return None
    rest = found.string[found.end() :]
    wrapped = found.start(1) > 0
    bad = not rest.startswith((")", ",")) if wrapped else rest.startswith(tuple("/@:_."))
    return None if bad else float(found[1])


def is_rounded_zero(text: str) -> bool:
    """Whether a zero was printed with so few decimals that it may be a small number."""
    return _ROUNDED_ZERO.match(text.strip()) is not None


def complete(line: str) -> bool:
    """Whether the line's last pair has a value."""
    last = line.rsplit(SEPARATOR, 1)[-1]
    return ":" in last and value_of(last.rpartition(":")[2]) is not None


def joins(line: str, more: str, adjacent: bool = True) -> str | None:
    """The line with its continuation, or None if the text does not go on with it.

    A wrapped line breaks anywhere, also within a name or a number; wrapping may have eaten the spaces at the break.
    Digits alone go on with a number that could be whole already only if no line stands between (`adjacent`).
    """
    body = more.rstrip()
    at_separator = line.rstrip().endswith(" -") or body.startswith((" - ", "- "))
    if not body or not _CONTINUATION.match(body.strip().removeprefix("- ")):
        return None
    if at_separator:
        return f"{line.rstrip()} {body.lstrip()}"
    if SEPARATOR not in body and not _goes_on(line, body, adjacent):
        return None
    last = line.rsplit(SEPARATOR, 1)[-1]
    joined = line + body
    tail = joined[len(line) - len(last) :].split(SEPARATOR)
    return joined if all(_sound(part) for part in tail[:-1]) else None


def _goes_on(line: str, body: str, adjacent: bool) -> bool:
    """Whether a piece without a separator, the last of its line, can follow."""
    if _REST_OF_VALUE.match(body):
        return adjacent or not complete(line)
    return ":" in body and not complete(line)


def _sound(part: str) -> bool:
    """Whether the part is a name and nothing but a value."""
    name, _, text = part.rpartition(":")
    found = _VALUE.match(text)
    return bool(_NAME.match(name.strip())) and found is not None and text[found.end() :].strip() in ("", ")")
