"""The catalogue of known failures as values: `Failure`, `Catalog`, `load_catalog`.

Knowledge is data: an entry of `failures.yaml` needs no code. This module only gives it types and refuses a bad entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Any

from sweep.core.failure import FailureClass, Retry
from sweep.errors import ConfigError


class Kind(Enum):
    """How much a sign in the log says about the cause."""

    CAUSE = "cause"
    SYMPTOM = "symptom"
    ENVELOPE = "envelope"
    WARNING = "warning"
    CONSEQUENCE = "consequence"
    RULE = "rule"


class Confidence(Enum):
    """How sure a diagnosis is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Sign:
    """A regular expression, and literal texts of which a line must hold one before the expression is tried."""

    pattern: re.Pattern[str]
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do: sentences for people, and settings with the direction in which to move them."""

    fix: tuple[str, ...] = ()
    moves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """One known failure; the fields are those of `failures.yaml`."""

    code: str
    title: str
    kind: Kind
    failure_class: FailureClass
    retry: Retry
    max_retries: int
    phase: str | None
    signs: tuple[Sign, ...]
    details: tuple[re.Pattern[str], ...]
    remedy: Remedy
    by_phase: Mapping[str, Remedy]
    avoid: tuple[str, ...]
    wraps: frozenset[str]
    abort: bool
    confidence: Confidence
    examples: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known failures in order, phases by function name (with their rank), classes by exception type.

    `triggers` are texts in lower case of which every line that shows a failure holds one; `gated` are the signs by
    the text that a line must hold, each with the place of its failure.
    """

    failures: tuple[Failure, ...]
    phases: Mapping[str, tuple[int, str]]
    types: Mapping[str, FailureClass]
    triggers: tuple[str, ...]
    gated: Mapping[str, tuple[tuple[int, Sign], ...]]

    def named(self, code: str) -> Failure:
        """The first entry of that code.

        Raises:
            ConfigError: there is none.
        """
        found = next((failure for failure in self.failures if failure.code == code), None)
        if found is None:
            raise ConfigError(f"the failure catalogue was asked for {code}, and has no such entry")
        return found


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalogue that comes with the package."""
    import yaml

    return parse_catalog(yaml.safe_load(files("sweep.health").joinpath("failures.yaml").read_text(encoding="utf-8")))


def parse_catalog(content: Mapping[str, Any]) -> Catalog:
    """The catalogue that the content of a YAML file describes.

    Raises:
        ConfigError: an entry lacks a field, or names an unknown class, kind or expression.
    """
    phases: dict[str, tuple[int, str]] = {}
    for rank, (phase, functions) in enumerate(content.get("phases", {}).items()):
        phases.update({name: (rank, phase) for name in functions})
    types = {name: FailureClass[member] for name, member in content.get("types", {}).items()}
    failures = tuple(_failure(entry) for entry in content["failures"])
    gated: dict[str, tuple[tuple[int, Sign], ...]] = {}
    for place, failure in enumerate(failures):
        for sign in failure.signs:
            for gate in sign.gates:
                gated[gate] = (*gated.get(gate, ()), (place, sign))
    return Catalog(failures, phases, types, _triggers(content.get("triggers", ()), gated), gated)


def _triggers(words: Iterable[str], gates_used: Iterable[str]) -> tuple[str, ...]:
    """The words, and every gate that none of them is part of."""
    found = [word.lower() for word in words]
    for gate in gates_used:
        if not any(word in gate for word in found):
            found.append(gate)
    return tuple(found)


def gates(expression: str) -> tuple[str, ...]:
    """For each alternative of the expression, the longest text that it contains literally, in lower case.

    An alternative without such a text gives an empty one, which every line holds. Groups, classes and optional
    characters are passed over, so a gate may be shorter than it could be, but never wrong.
    """
    alternatives, run, place = [list[str]()], "", 0
    while place < len(expression):
        token, place = _token(expression, place)
        if token == "|":
            alternatives[-1].append(run)
            alternatives.append([])
            run = ""
        elif token and place < len(expression) and expression[place] in "?*{":
            alternatives[-1].append(run)
            run = ""
        elif token:
            run += token
        else:
            alternatives[-1].append(run)
            run = ""
    alternatives[-1].append(run)
    return tuple(max(found, key=len).lower() for found in alternatives)


def _token(expression: str, place: int) -> tuple[str, int]:
    """The literal character at a place (empty for anything else) and the place after it."""
    mark = expression[place]
    if mark == "\\":
        escaped = expression[place + 1 : place + 2]
        return ("" if escaped.isalnum() else escaped), place + 2
    if mark == "[":
        return "", _class_end(expression, place)
    if mark == "(":
        return "", _group_end(expression, place)
    if mark == "{":
        return "", expression.index("}", place) + 1
    return ("" if mark in ".^$?*+)" else mark), place + 1


def _class_end(expression: str, place: int) -> int:
    """The place after a character class; a bracket that is escaped or comes first does not end it."""
    place += 2 if expression[place + 1 : place + 2] == "^" else 1
    place += 1 if expression[place : place + 1] == "]" else 0
    while place < len(expression) and expression[place] != "]":
        place += 2 if expression[place] == "\\" else 1
    return place + 1


def _group_end(expression: str, place: int) -> int:
    depth = 0
    while place < len(expression):
        mark = expression[place]
        if mark == "\\":
            place += 1
        elif mark == "[":
            place = _class_end(expression, place) - 1
        elif mark in "()":
            depth += 1 if mark == "(" else -1
            if depth == 0:
                return place + 1
        place += 1
    return place


def _failure(entry: Mapping[str, Any]) -> Failure:
    try:
        return Failure(
            code=entry["code"],
            title=entry["title"],
            kind=Kind(entry.get("kind", "cause")),
            failure_class=FailureClass[entry["class"]],
            retry=Retry[entry["retry"]],
            max_retries=int(entry.get("max_retries", 0)),
            phase=entry.get("phase"),
            signs=tuple(Sign(_compiled(text), gates(text)) for text in entry.get("any", ())),
            details=tuple(_compiled(text) for text in entry.get("details", ())),
            remedy=_remedy(entry),
            by_phase={phase: _remedy(remedy) for phase, remedy in entry.get("by_phase", {}).items()},
            avoid=tuple(entry.get("avoid", ())),
            wraps=frozenset(entry.get("wraps", ())),
            abort=bool(entry.get("abort", False)),
            confidence=Confidence(entry.get("confidence", "high")),
            examples=tuple(entry.get("examples", ())),
            source=entry["source"],
        )
    except (KeyError, ValueError, re.error) as problem:
        raise ConfigError(f"failure catalogue entry {entry.get('code', '?')} is invalid: {problem}") from problem


def _remedy(entry: Mapping[str, Any]) -> Remedy:
    moves = {key: str(direction) for key, direction in entry.get("moves", {}).items()}
    return Remedy(tuple(str(text) for text in entry.get("fix", ())), moves)


def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)
