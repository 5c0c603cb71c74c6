"""Metric rows from the short forms in which cases give them: straight segments with noise that repeats exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NOT_METRICS = frozenset({"from", "to", "noise"})
_MASK = (1 << 31) - 1


def noise(step: int, name: str) -> float:
    """A number in [-1, 1) that depends on step and name only: two rounds of a linear congruential generator."""
    state = (step * 1103515245 + 12345 * sum(ord(letter) for letter in name) + 7) & _MASK
    state = (state * 1103515245 + 12345) & _MASK
    return state / ((1 << 30) - 1) - 1.0


def expand(segments: Iterable[Mapping[str, Any]]) -> list[tuple[int, dict[str, float]]]:
    """One row a step; each metric goes straight from its first to its second value over the segment."""
    rows = []
    for segment in segments:
        first, last, width = segment["from"], segment["to"], segment.get("noise", 0.0)
        for step in range(first, last + 1):
            way = (step - first) / (last - first) if last > first else 0.0
            metrics = {
                name: round(ends[0] + (ends[1] - ends[0]) * way + (width * noise(step, name) if width else 0.0), 6)
                for name, ends in segment.items()
                if name not in NOT_METRICS
            }
            rows.append((step, metrics))
    return rows


def metric_rows(given: Mapping[str, Any]) -> list[tuple[int, dict[str, float]]]:
    """The rows of an input, however it gives them; text stands for numbers that JSON does not have, null for none."""
    if "segments" in given:
        return expand(given["segments"])
    return [
        (int(row["step"]), {n: float(str(v)) for n, v in row.items() if n != "step" and v is not None})
        for row in given.get("rows", [])
    ]
