"""Answers for `logparse`: text through the readers, told row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sweep.health.readers.open_log import read_lines


def text(given: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of the text; a zero that may be rounded is told by its name and not as a value."""
    runs = read_lines(given["text"].encode("utf-8", "surrogateescape").splitlines())
    rounded = {name for run in runs for name in run.table.low_precision}
    rows = [
        {"step": step} | {n: _spelled(v) for n, v in metrics.items() if v != 0 or n not in rounded}
        for run in runs
        for step, metrics in run.table.rows()
    ]
    return {
        "rows": rows,
        "low_precision": sorted(rounded),
        "runs": len(runs),
        "row_count": len(rows),
        "steps": [row["step"] for row in rows],
        "notes": [note for run in runs for note in run.notes],
        "text": "; ".join(note for run in runs for note in run.notes),
    }


def _spelled(value: float) -> float | str:
    """Numbers that JSON does not have, as the cases spell them."""
    return value if math.isfinite(value) else str(value)


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"log_text": text}
