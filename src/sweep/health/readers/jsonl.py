"""JSON lines: verl's file logger, `{"step": N, "data": {...}}`, and flat rows with a step among their fields.

verl writes NaN and infinity as null, since orjson does; there a null is a value that is not finite. In a flat row,
as trackers export them, a null is a metric that this row does not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sweep.errors import ConfigError
from sweep.health.readers.logged_run import LoggedRun, finish_all, target
from sweep.health.table_builder import TableBuilder

STEP_FIELDS = ("step", "global_step", "training/global_step", "_step", "trainer/global_step", "Step")
"""Where a flat row keeps its step, the likeliest first."""

MAX_STEP = 10**12
"""A larger step is no step."""


def read_jsonl(lines: Iterable[bytes], label: str = "run") -> list[LoggedRun]:
    """The runs in JSON lines; damaged lines are counted in the notes, a step back to the beginning starts a run.

    Raises:
        ConfigError: no line is a row of a run.
    """
    builders: list[TableBuilder] = []
    damaged, fields = 0, set[str]()
    for line in lines:
        if not line.strip():
            continue
        content = _object(line)
        row = _row(content) if content is not None else None
        if row is None:
            damaged += 1
            fields |= set(list(content or ())[:10])
            continue
        step, metrics = row
        target(builders, step, metrics).add(step, tuple(metrics), list(metrics.values()))
    if not builders:
        raise ConfigError(_nothing_found(damaged, fields))
    notes = (f"{damaged} lines are no rows of a run (cut off or damaged) and were left out",) if damaged else ()
    return finish_all(label, builders, notes)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _row(content: Mapping[str, Any]) -> tuple[int, dict[str, float]] | None:
    """Step and metrics; None if there is no step."""
    nested = content.get("data")
    if isinstance(nested, dict) and "step" in content:
        step = _step(content["step"])
        return None if step is None else (step, _numbers(nested, null=math.nan))
    for name in STEP_FIELDS:
        step = _step(content.get(name))
        if step is not None:
            rest = {k: v for k, v in content.items() if k != name}
            return step, _numbers(rest, null=None)
    return None


def _step(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_STEP:
        return None
    return int(value)


def _numbers(metrics: Mapping[str, Any], null: float | None) -> dict[str, float]:
    """The numbers among the metrics; text counts if it reads as NaN or infinity."""
    found = ((name, value if type(value) is float else _number(value, null)) for name, value in metrics.items())
    return {name: value for name, value in found if value is not None}


def _number(value: object, null: float | None) -> float | None:
    if value is None:
        return null
    if isinstance(value, str):
        text = value.strip().casefold().lstrip("+-")
        return float(value) if text in ("nan", "inf", "infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _nothing_found(damaged: int, fields: set[str]) -> str:
    if fields:
        return (
            f"none of {damaged} JSON lines has a step; their fields are {', '.join(sorted(fields)[:10])}; "
            'a training log has rows like {"step": 1, "data": {...}}'
        )
    return f"none of {damaged} lines is a JSON object with a step"
