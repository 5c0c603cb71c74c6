"""What a YAML file says as what it must be: `section`, `listing`, `number`, `importable`, and `built` for a dataclass.

Each takes `where`, the file and key for the message. A section that is left empty counts as one without entries.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from sweep.core.within import Within
from sweep.errors import ConfigError

WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
"""The plain types in words; a value of any other type is built by its own section."""

T = TypeVar("T")


def section(where: str, content: object) -> Mapping[str, Any]:
    """The content as keys with values.

    Raises:
        ConfigError: if it is anything else.
    """
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where} must be a section of key: value lines, got {content!r}")
    return {str(key): value for key, value in content.items()}


def listing(where: str, content: object, kind: type = str) -> list[Any]:
    """The content as a list of values of one plain type, or of lists.

    Raises:
        ConfigError: if it is anything else.
    """
    if content is None:
        return []
    if not isinstance(content, list | tuple):
        raise ConfigError(f"{where} must be a list such as [a, b], got {content!r}")
    if kind is list:
        return [listing(f"{where}, entry {i}", entry, object) for i, entry in enumerate(content, start=1)]
    entries = enumerate(content, start=1)
    return [entry if kind is object else fitting(f"{where}, entry {i}", kind, entry) for i, entry in entries]


def number(where: str, value: object, within: Within) -> float:
    """The value as a number in the range.

    Raises:
        ConfigError: if it is none.
    """
    found: float = fitting(where, Annotated[float, within], value)
    return found


def built(kind: type[T], where: str, content: object, **given: object) -> T:
    """The dataclass with the section's values, each of the type and in the range that its field states.

    `given` are fields that the section does not set.

    Raises:
        ConfigError: for an unknown key, a missing one or a value that does not fit.
    """
    said = section(where, content)
    hints = get_type_hints(kind, include_extras=True)
    known_keys(where, said, set(hints) - set(given))
    values = {name: fitting(f"{where}.{name}", hints[name], value) for name, value in said.items()}
    missing = [f.name for f in fields(kind) if f.name not in {*values, *given} and not _has_default(f)]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}; known: {', '.join(sorted(hints))}")
    return kind(**values, **given)


def known_keys(where: str, content: Collection[str], known: Collection[str]) -> None:
    """Raises: ConfigError: if there is a key that nobody reads."""
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ConfigError(f"{where}: unknown key {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def fitting(where: str, hint: Any, value: object) -> Any:
    """The value, if it is of the type in the hint and in its range; a whole number may be written as 512.0.

    Raises:
        ConfigError: if it is not.
    """
    within = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Within)), Within())
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kinds = get_args(plain) or (plain,)
    if value is None and NoneType in kinds:
        return None
    kind = next(k for k in kinds if k is not NoneType)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _is(kind, value):
        aside = " or null" if NoneType in kinds else ""
        raise ConfigError(f"{where} must be {WORDS[kind]}{aside}, got {_spelled(value)}")
    if kind in (int, float) and not within.holds(value):  # type: ignore[arg-type]
        raise ConfigError(f"{where} must be {within}, got {value}")
    return value


def _spelled(value: object) -> str:
    """The value as YAML writes it, where Python writes another word."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def _is(kind: type, value: object) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _has_default(declared: Any) -> bool:
    from dataclasses import MISSING

    return declared.default is not MISSING or declared.default_factory is not MISSING


def importable(where: str, path: str) -> None:
    """Raises: ConfigError: if the path names no function that can be imported here."""
    module, _, function = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None) if module and function else None
    except Exception as error:  # the module is the user's: it may raise anything
        raise ConfigError(f"{where}: cannot import {module} for {path!r}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{where} must be module:function, and {path!r} names no function")
