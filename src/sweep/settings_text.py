"""`parse_settings`: verl settings as a user writes them, to keys and values."""

from __future__ import annotations

from sweep.errors import ConfigError
from sweep.yaml_values import listing


def parse_settings(lines: object, where: str) -> list[tuple[str, object]]:
    """verl settings written as Hydra overrides, as (key, value) pairs; a leading `+` stays on the key.

    Raises:
        ConfigError: for a line that is not `key=value`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    pairs: list[tuple[str, object]] = []
    for line in listing(where, lines):
        try:
            parsed = parser.parse_override(line)
        except HydraException as error:
            raise ConfigError(f"{where}: cannot read {line!r} as key=value; {advice(line)}") from error
        if parsed.is_delete() or parsed.is_sweep_override() or parsed.package is not None:
            raise ConfigError(f"{where}: a verl setting is a plain key=value (with + to add a key), got {line!r}")
        plus = "+" if parsed.is_add() or parsed.is_force_add() else ""
        pairs.append((plus + parsed.key_or_group, parsed.value()))
    return pairs


def advice(line: str) -> str:
    """What is wrong with a line that is no setting, without the parser's own words."""
    key, equals, value = line.partition("=")
    if not line.strip():
        return "the entry is empty; leave it out"
    if not equals or not key.strip():
        return "write it as in trainer.test_freq=50"
    return f"quote a value with other signs than letters, digits and _-./:+%, as in {key}='{value}'"
