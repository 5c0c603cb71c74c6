"""`readable`: what Hydra and OmegaConf say, in our words: which key, what it must be, what was given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from sweep.config_schema import CampaignConfig
from sweep.typed_overrides import unknown_key
from sweep.yaml_values import WORDS


def readable(error: Exception, overrides: Sequence[str], known_keys: Callable[[], Sequence[str]]) -> str:
    """The error in our words: what was asked, what would work. `known_keys` are those of the default configuration."""
    from hydra.errors import MissingConfigException

    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return f"{group} must be one of {', '.join(sorted(error.options))}, got {name!r}"
    if wanted := _wrong_type(error, overrides):
        return wanted
    asked = f" (asked: {' '.join(overrides)})" if overrides else ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "; ".join(line for line in lines if not line.startswith(_HYDRA_ASIDES))
    stray = re.search(r"Key '([^']+)' not in '(\w+)'", text)
    if stray:
        return _stray_key(*stray.groups())
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return unknown_key(key.group(1), known_keys())
    return f"{text}{asked}; python -m sweep --cfg shows every key"


def _stray_key(key: str, schema: str) -> str:
    """Which section has a key that nobody reads, on the command line or in a file of conf/."""
    sections = {getattr(hint, "__name__", ""): name for name, hint in get_type_hints(CampaignConfig).items()}
    section = sections.get(schema, "")
    kind = get_type_hints(CampaignConfig)[section] if section else CampaignConfig
    where = f"{section} has no key {key!r}; it has" if section else f"there is no section {key!r}; there are"
    return f"{where} {', '.join(get_type_hints(kind))}"


def _wrong_type(error: Exception, overrides: Sequence[str]) -> str:
    """Which key holds a value of another type than it must, empty if that is not the error."""
    from omegaconf.errors import ValidationError

    key = getattr(error, "full_key", None) or _section_given_a_value(overrides)
    if not isinstance(error, ValidationError) or not key:
        return ""
    given = next((value for name, _, value in (o.partition("=") for o in reversed(overrides)) if name == key), None)
    got = f"got {given!r}" if given is not None else str(error).splitlines()[0]
    return f"{key} must be {_wanted_type(key)}, {got}"


def _section_given_a_value(overrides: Sequence[str]) -> str:
    """The section that the command line replaces as a whole, of which OmegaConf does not say the name."""
    sections = {name for name, hint in get_type_hints(CampaignConfig).items() if is_dataclass(hint)}
    return next((o.partition("=")[0] for o in overrides if o.partition("=")[0] in sections), "")


def _wanted_type(key: str) -> str:
    """What the schema wants under a dotted key, in words."""
    hint: Any = CampaignConfig
    for name in re.sub(r"\[.*", "", key).split("."):
        hint = get_type_hints(hint).get(name, str) if is_dataclass(hint) else (*get_args(hint), str)[-2]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next(k for k in kinds if k is not NoneType)
    words = WORDS.get(kind, "a list such as [a,b]" if get_origin(kind) is list else "a section with keys of its own")
    return words + (" or null" if NoneType in kinds else "")


_HYDRA_ASIDES = ("full_key", "object_type", "reference_type", "Set the environment", "To append", "In '", "See https")
