"""`Overrides`: verl settings as a sorted, hashable value, and their text form on a Hydra command line.

A key may carry Hydra's `+` (add a key that verl's schema lacks); it names the same setting with and without.
Nothing here knows which keys exist: `sweep.engines.verl.compose` asks verl's own configuration.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | Struct | None"


@dataclass(frozen=True, slots=True)
class Struct:
    """A mapping inside a value, kept sorted so that equal content is equal and hashable."""

    items: tuple[tuple[str, Value], ...]


def freeze(value: object) -> Value:
    """The value with lists as tuples and mappings as sorted `Struct`s.

    Raises:
        TypeError: for anything that has no literal on a Hydra command line.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Struct):
        return value
    if isinstance(value, Mapping):
        return Struct(tuple(sorted((str(k), freeze(v)) for k, v in value.items())))
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    raise TypeError(f"an override value must be a string, number, boolean, null, list or mapping, got {value!r}")


def thaw(value: Value) -> object:
    """The value as plain JSON types: the inverse of `freeze` up to tuple and list."""
    if isinstance(value, Struct):
        return {k: thaw(v) for k, v in value.items}
    if isinstance(value, tuple):
        return [thaw(v) for v in value]
    return value


def is_interpolation(value: object) -> bool:
    """Whether Hydra would put something else in its place, quoted or not: a text with `${...}`."""
    return isinstance(value, str) and re.search(r"(?<!\\)\$\{", value) is not None


def bare(key: str) -> str:
    """The key without Hydra's leading `+`."""
    return key.lstrip("+")


@dataclass(frozen=True, slots=True)
class Overrides:
    """verl settings by full dotted key, sorted by bare key; equal content is equal, hashes and ids alike."""

    items: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, object] | Iterable[tuple[str, object]]) -> Overrides:
        """The settings with later mentions of one key winning over earlier ones."""
        pairs = settings.items() if isinstance(settings, Mapping) else settings
        found: dict[str, tuple[str, Value]] = {}
        for key, value in pairs:
            found[bare(key)] = (key, freeze(value))
        return cls(tuple(found[k] for k in sorted(found)))

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, key: str) -> bool:
        return any(bare(k) == bare(key) for k, _ in self.items)

    def get(self, key: str, default: Value = None) -> Value:
        """The value of the key, whether either side spells it with `+` or not."""
        return next((v for k, v in self.items if bare(k) == bare(key)), default)

    def merged(self, other: Overrides | Mapping[str, object]) -> Overrides:
        """These settings with the other's on top."""
        return Overrides.of([*self.items, *(other.items() if isinstance(other, Mapping) else other.items)])

    def difference(self, other: Overrides) -> tuple[str, ...]:
        """The bare keys whose value differs between the two, sorted."""
        mine, theirs = self.by_bare_key(), other.by_bare_key()
        missing = object()
        return tuple(sorted(k for k in mine.keys() | theirs if mine.get(k, missing) != theirs.get(k, missing)))

    def by_bare_key(self) -> dict[str, Value]:
        """Key without `+` to value."""
        return {bare(k): v for k, v in self.items}

    def to_json(self) -> dict[str, object]:
        """Key as written to plain JSON value."""
        return {k: thaw(v) for k, v in self.items}

    def command_line(self) -> tuple[str, ...]:
        """One `key=value` string a setting, which Hydra parses back to the same value and type."""
        return tuple(f"{k}={literal(v)}" for k, v in self.items)


NOTHING = Overrides()
"""No settings: the baseline of a stage."""


def literal(value: Value) -> str:
    """The value as Hydra's override grammar spells it; strings are always quoted.

    Source: the grammar of Hydra 1.3 (backslashes are special only in front of a quote or at the end).
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ",".join(literal(v) for v in value) + "]"
    if isinstance(value, Struct):
        return "{" + ",".join(f"{_escaped(k)}:{literal(v)}" for k, v in value.items) + "}"
    return _quoted(value)


def _quoted(text: str) -> str:
    doubled = re.sub(r"(\\+)(?='|$)", lambda m: m.group(1) * 2, text)
    return "'" + doubled.replace("'", "\\'") + "'"


def _escaped(key: str) -> str:
    """A mapping's key, which Hydra's grammar does not let be quoted."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key)


def content_hash(content: object, digits: int = 12) -> str:
    """Hex digits of the SHA-256 of canonical JSON; 512 and 512.0 count as the same number."""
    text = json.dumps(_canonical(content), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _canonical(content: object) -> object:
    if isinstance(content, bool) or content is None or isinstance(content, str):
        return content
    if isinstance(content, int | float):
        return repr(float(content)) if math.isfinite(content) else str(content)
    if isinstance(content, Mapping):
        return {str(k): _canonical(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [_canonical(v) for v in content]
    raise TypeError(f"content must be JSON, got {type(content).__name__}")
