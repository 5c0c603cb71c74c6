"""`search_terms`: all that a stage's YAML says of its search, as one flat value that its winner keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum

from sweep.core.overrides import Overrides
from sweep.core.stage import Stage

ELSEWHERE = frozenset({"name", "follows"})
"""Fields of a stage that are no terms of its search; what it follows is in what its winner stands on."""


def search_terms(stage: Stage) -> Overrides:
    """Knobs, rule with its constants, objective, constraints and budget, by their path: `rule.most_points`."""
    own = (f.name for f in fields(stage) if f.name not in ELSEWHERE)
    return Overrides.of(term for name in own for term in _terms(name, getattr(stage, name)))


def _terms(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Overrides):
        for key, setting in value:
            yield f"{path}.{key}", setting
    elif is_dataclass(value):
        yield path, type(value).__name__
        for field in fields(value):
            yield from _terms(f"{path}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple) and any(is_dataclass(v) or isinstance(v, tuple) for v in value):
        for place, part in enumerate(value):
            yield from _terms(f"{path}.{place}", part)
    else:
        yield path, value.value if isinstance(value, Enum) else value
