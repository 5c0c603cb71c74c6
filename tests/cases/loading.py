"""Which cases are run: the file that `SWEEP_CASES` names, else those kept beside this module."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    """One report. `label` names it in test output and is looked at nowhere else."""

    label: str
    component: str
    given: dict[str, Any]
    expected: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.given["kind"])


def load_cases() -> list[Case]:
    """The cases in the order of their file."""
    path = Path(os.environ.get("SWEEP_CASES") or DATA / "cases.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [_case(row) for row in rows]


def _case(row: dict[str, Any]) -> Case:
    component, given = row["component"], row["input"]
    return Case(f"{row['id']}-{component}-{given['kind']}", component, given, row["expected"])


def base_overrides() -> list[str]:
    """The verl configuration, as overrides, that configuration cases start from."""
    return list(json.loads((DATA / "base_config.json").read_text(encoding="utf-8"))["base_overrides"])
