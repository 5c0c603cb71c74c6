"""Preflight: what is wrong with a configuration before anything is started. `preflight`, `verdict`.

Pure: a flat, composed verl configuration and `Facts` in, findings out, worst first. Composing, reading files and
asking the machine is done elsewhere (`sweep.engines.verl`). What is unknown is passed over in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep.health.preflight import (
    advice,
    batches,
    checkpoints,
    data,
    dead_keys,
    kl,
    machine,
    memory,
    micro_keys,
    options,
    own_settings,
    parallel,
    schedule,
    tokens,
)
from sweep.health.preflight.checkpoints import check_together
from sweep.health.preflight.facts import Facts, ModelFacts, UnknownKey
from sweep.health.preflight.finding import PreflightFinding, Severity, error, verdict
from sweep.health.preflight.settings import Config

__all__ = [
    "Config",
    "Facts",
    "ModelFacts",
    "PreflightFinding",
    "Severity",
    "UnknownKey",
    "check_together",
    "preflight",
    "verdict",
]

FAMILIES = (
    dead_keys,
    options,
    own_settings,
    batches,
    micro_keys,
    parallel,
    tokens,
    memory,
    kl,
    schedule,
    checkpoints,
    data,
    machine,
    advice,
)
"""Families of checks in the order of their findings; each has `check(config, facts)`."""


def preflight(config: Config, facts: Facts | None = None) -> tuple[PreflightFinding, ...]:
    """Everything found in the configuration, worst first, each finding once.

    Args:
        config: verl's composed configuration, flat, with dotted keys.
        facts: what is known around it; nothing by default.
    """
    known = facts or Facts()
    found = [*_not_finite(config)]
    for family in FAMILIES:
        found.extend(family.check(config, known))
    unique = {(finding.code, finding.keys, finding.what): finding for finding in found}
    return tuple(sorted(unique.values(), key=lambda finding: finding.severity.rank))


def _not_finite(config: Config) -> Iterator[PreflightFinding]:
    for key, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield error("VALUE_NOT_FINITE", f"{key} is {value}", "verl would train on it", keys=(key,))
