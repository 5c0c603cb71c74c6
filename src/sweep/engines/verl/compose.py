"""verl's own configuration, composed from overrides without importing verl: `compose`.

Finds the files of the installed package, lets Hydra compose them and flattens the result to dotted keys. Keys that
verl does not have are told apart and left out, each with the keys it most likely meant, so that one mistake does not
hide the next. Does not judge values: that is `sweep.health.preflight`.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.overrides import Overrides, is_interpolation
from sweep.errors import ConfigError
from sweep.health.preflight.facts import UnknownKey
from sweep.health.preflight.settings import MISSING
from sweep.health.preflight.suggest import suggest
from sweep.settings_text import advice

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

ROOT_CONFIG = "ppo_trainer"
"""Name of the root file. Source: verl trainer/main_ppo.py."""

_HYDRA = threading.RLock()
# Hydra's compose API works on one process-wide state.


@dataclass(frozen=True, slots=True)
class Composed:
    """A composed configuration, flat, and what became of the overrides.

    `given` are the keys that the overrides set, `added` those of them with Hydra's `+`; `unknown` were left out.
    `mistyped` are given keys whose value is no number or switch where verl's default, which is told, is one.
    """

    config: Mapping[str, object]
    given: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    unknown: tuple[UnknownKey, ...] = ()
    mistyped: Mapping[str, object] = field(default_factory=dict)


def config_folder() -> Path:
    """The folder of verl's configuration files in the installed package.

    Raises:
        ConfigError: verl is not installed.
    """
    spec = importlib.util.find_spec("verl")
    places = list(spec.submodule_search_locations or ()) if spec else []
    folders = [Path(place, "trainer", "config") for place in places]
    found = next((folder for folder in folders if (folder / f"{ROOT_CONFIG}.yaml").is_file()), None)
    if found is None:
        raise ConfigError("verl's configuration was asked for, but verl is not installed here; try: pip install verl")
    return found


def compose(overrides: Sequence[str] | Overrides) -> Composed:
    """verl's configuration with the overrides on top; interpolations are resolved where they can be.

    Raises:
        ConfigError: verl is not installed, an override is not in Hydra's grammar, or the rest does not compose.
    """
    lines = list(overrides.command_line() if isinstance(overrides, Overrides) else overrides)
    parsed = _parse(lines)
    groups = [entry for entry in parsed if _is_group(entry)]
    schema = _schema(tuple(entry.input_line or "" for entry in groups))
    settings = [entry for entry in parsed if entry not in groups]
    unknown = [entry for entry in settings if not _accepted(entry, schema)]
    config = _flat(tuple(entry.input_line or "" for entry in parsed if entry not in unknown))
    known = [entry for entry in settings if entry not in unknown]
    return Composed(
        config,
        given=frozenset(entry.key_or_group for entry in known),
        added=frozenset(_added_keys(known, schema)),
        unknown=tuple(_explain(entry, schema) for entry in unknown),
        mistyped=_mistyped((entry.key_or_group for entry in known), config, schema),
    )


def combinations(lines: Sequence[str]) -> tuple[frozenset[str], dict[str, list[str]]]:
    """The keys with several values, and the overrides of each run of Hydra's multirun by what is its own.

    Raises:
        ConfigError: an override is not in Hydra's grammar.
    """
    entries = _parsed(list(lines))
    several = [entry for entry in entries if entry.is_discrete_sweep()]
    common = [entry.input_line or "" for entry in entries if entry not in several]
    choices = [[f"{entry.get_key_element()}={v}" for v in entry.sweep_string_iterator()] for entry in several]
    runs = {" ".join(chosen): [*common, *chosen] for chosen in product(*choices)}
    return frozenset(entry.key_or_group for entry in several), runs


def require_known(composed: Composed) -> Composed:
    """The composition itself, if every key of its overrides is verl's.

    Raises:
        ConfigError: some are not; the message names each with the nearest key.
    """
    if not composed.unknown:
        return composed
    told = []
    for unknown in composed.unknown:
        nearest = f"; nearest: {', '.join(unknown.suggestions)}" if unknown.suggestions else ""
        told.append(f"{unknown.key}{nearest}" + (f" ({unknown.note})" if unknown.note else ""))
    raise ConfigError("verl has no such key: " + " | ".join(told))


def _parse(lines: list[str]) -> list[Override]:
    parsed = _parsed(lines)
    sweeping = [entry.input_line for entry in parsed if entry.is_sweep_override()]
    if sweeping:
        raise ConfigError(f"one configuration was asked for, but {sweeping[0]} names several; quote the value")
    return parsed


def _parsed(lines: list[str]) -> list[Override]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, found = OverridesParser.create(), []
    for line in lines:
        try:
            found.append(parser.parse_override(line))
        except HydraException as problem:
            raise ConfigError(f"an override is not in Hydra's grammar: {line!r}; {advice(line)}") from problem
    return found


def _is_group(entry: Override) -> bool:
    """Whether the override chooses a file rather than a value: it names a package, or a folder of verl's files."""
    return entry.package is not None or (config_folder() / entry.key_or_group).is_dir()


def _accepted(entry: Override, schema: Mapping[str, object]) -> bool:
    key = entry.key_or_group
    return entry.is_add() or key.startswith("hydra.") or key in _all_nodes(tuple(schema))


def _added_keys(entries: Iterable[Override], schema: Mapping[str, object]) -> Iterator[str]:
    nodes = _all_nodes(tuple(schema))
    return (entry.key_or_group for entry in entries if entry.is_add() and entry.key_or_group not in nodes)


def _explain(entry: Override, schema: Mapping[str, object]) -> UnknownKey:
    key = entry.key_or_group
    parent = key.rpartition(".")[0]
    if schema.get(parent) == {}:
        return UnknownKey(key, (f"+{key}",), f"{parent} is open: a new key in it needs Hydra's +")
    return suggest(key, schema)


def _mistyped(given: Iterable[str], config: Mapping[str, object], schema: Mapping[str, object]) -> Mapping[str, object]:
    return {key: schema[key] for key in given if key in schema and not _is_like(schema[key], config.get(key))}


def _is_like(default: object, value: object) -> bool:
    """Whether the value can stand where verl has the default; a number may be written as text."""
    if value is None or not isinstance(default, int | float) or is_interpolation(value):
        return True
    if isinstance(default, bool) or not isinstance(value, str):
        return isinstance(value, bool | int | float)
    try:
        float(value)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=8)
def _all_nodes(leaves: tuple[str, ...]) -> frozenset[str]:
    """The keys themselves and every prefix of them."""
    nodes = set(leaves)
    for leaf in leaves:
        parts = leaf.split(".")
        nodes.update(".".join(parts[:end]) for end in range(1, len(parts)))
    return frozenset(nodes)


@lru_cache(maxsize=8)
def _schema(groups: tuple[str, ...]) -> Mapping[str, object]:
    return _flat(groups)


def _flat(lines: tuple[str, ...]) -> Mapping[str, object]:
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    with _verls_hydra():
        try:
            tree = hydra_compose(ROOT_CONFIG, overrides=list(lines))
        except (HydraException, OmegaConfBaseException) as problem:
            raise ConfigError(f"verl's configuration does not compose: {_one_line(problem)}") from problem
        return dict(_leaves(tree, ""))


@contextmanager
def _verls_hydra() -> Iterator[None]:
    """Hydra looking at verl's files; whatever it looked at before is put back."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    with _HYDRA:
        outer = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(str(config_folder()), version_base=None):
                yield
        finally:
            GlobalHydra.instance().hydra = outer


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, object]]:
    """Every leaf of the tree; an empty mapping is a leaf, and so is an interpolation that cannot be resolved."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for name in node:
        key = f"{prefix}{name}"
        if OmegaConf.is_missing(node, name):
            yield key, MISSING
            continue
        try:
            value = node[name]
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_list(value) else value
        except OmegaConfBaseException:
            plain = str(OmegaConf.to_container(node, resolve=False)[name])
        if OmegaConf.is_dict(plain):
            yield from _leaves(plain, f"{key}.") if len(plain) else [(key, {})]
        else:
            yield key, plain


def _one_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return "; ".join(lines) or type(problem).__name__
