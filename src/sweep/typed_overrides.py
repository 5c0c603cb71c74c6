"""`check_overrides`: a command line's KEY=VALUE settings read one by one, so that a message names the wrong one.

`unknown_key` says what to write in place of a key that does not exist. Neither knows any key by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sweep.errors import ConfigError

QUOTED = "a value with other signs than letters, digits and _-./:+% is quoted twice, as in 'runs=\"my, runs\"'"
NAMES = ("campaign", "earlier")
"""Settings whose value is a campaign's name, which no quotes widen."""
VERL = "each entry of the list is quoted, as in 'verl=[\"trainer.test_freq=50\"]'"


def check_overrides(overrides: Sequence[str]) -> None:
    """Returns if every setting is one key with one value.

    Raises:
        ConfigError: for one that cannot be read, has several values, or sets Hydra itself.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    for line in overrides:
        key, equals, _ = line.partition("=")
        if not line.startswith("~") and (not equals or not key):
            raise ConfigError(f"cannot read {line!r}: settings are KEY=VALUE; python -m sweep --help shows them")
        try:
            parsed = parser.parse_override(line)
        except HydraException as error:
            raise ConfigError(f"cannot read {line!r} as KEY=VALUE; {_advice(key)}") from error
        if parsed.is_sweep_override():
            raise ConfigError(
                f"{key} has several values in {line!r}, and a campaign takes one; "
                f"a list is written '{key}=[a,b]', a text with a comma '{key}=\"a,b\"'"
            )
        if parsed.key_or_group.partition(".")[0] == "hydra":
            raise ConfigError(f"{line!r} sets Hydra, which nothing here reads; python -m sweep --cfg shows every key")


def unknown_key(key: str, known: Sequence[str]) -> str:
    """The message about a key that the configuration lacks, with the nearest that it has."""
    if key in known:
        return f"{key} has no such entry yet; add it with +, as in '+{key}.NAME=VALUE'"
    near = difflib.get_close_matches(key, known, n=3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    added = f"; a constant that its file leaves to the default is added with +: +{key}=VALUE"
    return (
        f"no setting is called {key}{hint}{added if _is_of_a_stage(key, known) else ''}; "
        "python -m sweep --cfg shows every key"
    )


def _is_of_a_stage(key: str, known: Sequence[str]) -> bool:
    """Whether the key lies in the section of a stage that there is; in another it would make a stage of its own."""
    section, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    return section == "stages" and any(k.startswith(f"stages.{name}.") for k in known)


def _advice(key: str) -> str:
    if key in NAMES:
        return f"{key} takes letters, digits, '.', '_' and '-' alone"
    return VERL if key.lstrip("+").split(".")[-1] == "verl" else QUOTED
