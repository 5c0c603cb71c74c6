"""The curves of a campaign's finished trials as one small JSON line each, to be kept beside the results they gave.

python -m benchmarks.export_curves runs/NAME curves.jsonl
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.stored_trials import finished_trials

DIGITS = 5
"""Significant digits kept of a number."""


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """A trial a line: stage, id, what sets it apart from the first trial, seed, steps, curve by series."""
    seen: set[str] = set()
    base = None
    for stage, record, outcome in finished_trials(folder):
        one = record.trial
        base = base or one.overrides
        if one.id in seen:
            continue
        seen.add(one.id)
        curve = dataclasses.asdict(outcome.curve)
        yield {
            "stage": stage,
            "trial": one.id,
            "settings": {k: one.overrides.get(k) for k in base.difference(one.overrides)},
            "seed": one.seed,
            "steps": one.steps,
            "curve": {name: [_short(v) for v in values] for name, values in curve.items() if _told(values)},
        }


def _told(values: Any) -> bool:
    return any(isinstance(v, int | float) and math.isfinite(v) for v in values)


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def main() -> None:
    """Write the file."""
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    found = list(lines(folder))
    target.write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
    print(f"{len(found)} finished trials of {folder} in {target}")


if __name__ == "__main__":
    main()
