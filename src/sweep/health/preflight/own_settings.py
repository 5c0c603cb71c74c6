"""Whether the settings of our plug-ins (`sweep.*`) make sense: clipping that decays, guards, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from sweep.core import verl_keys as keys
from sweep.core.clip_schedule import FLOOR
from sweep.health.limits import Limits
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, warn
from sweep.health.preflight.settings import Config, number, texts
from sweep.health.stopping import STOP_ON


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on the plug-ins' settings."""
    yield from _clip(config)
    yield from _guards(config)
    for key, least in ((keys.MIN_FREE_GIB, 0.0), (keys.KEEP_LAST, 1.0), (keys.BEST_GAIN, 0.0)):
        value = number(config, key)
        if value is not None and value < least:
            yield _out_of_range(key, value, f"{key}={least:g}", f"it must be at least {least:g}")


def _clip(config: Config) -> Iterator[PreflightFinding]:
    decay = number(config, keys.CLIP_DECAY)
    if decay is None:
        return
    if not 0.0 < decay <= 1.0:
        yield _out_of_range(keys.CLIP_DECAY, decay, f"{keys.CLIP_DECAY}=0.999", "a factor a step, above 0, at most 1")
        return
    floor = FLOOR if keys.CLIP_FLOOR not in config else number(config, keys.CLIP_FLOOR) or 0.0
    if floor <= 0.0 and decay < 1.0:
        yield error(
            "CLIP_WITHOUT_FLOOR",
            f"the clipping threshold falls by {decay:g} a step and has no floor",
            f"at step 5000 {decay**5000:.2g} of it is left: the policy stands still, and nothing says why",
            nearest=(f"+{keys.CLIP_FLOOR}={FLOOR}",),
            keys=(keys.CLIP_DECAY, keys.CLIP_FLOOR),
            source="S0 section 4.1; METHOD section 8",
        )
    elif decay < 1.0:
        reached = math.ceil(math.log(min(floor, 1.0)) / math.log(decay))
        yield warn(
            "CLIP_DECAYS",
            f"the clipping threshold falls by {decay:g} a step, to {floor:g} of its start at step {reached}",
            "it is no part of the four steps, and trials of different lengths no longer compare; the threshold is "
            "logged as sweep/clip_norm",
            keys=(keys.CLIP_DECAY, keys.CLIP_FLOOR),
            source="S0 section 4.1; METHOD section 8",
            computed={"floor_reached_at_step": reached},
        )


def _guards(config: Config) -> Iterator[PreflightFinding]:
    for name in texts(config, keys.STOP_ON):
        if name not in STOP_ON:
            yield _unknown(keys.STOP_ON, name, STOP_ON)
    known = tuple(f"{keys.LIMITS}.{f.name}" for f in fields(Limits))
    for key in config:
        if key.startswith(f"{keys.LIMITS}.") and key not in known:
            yield _unknown(keys.LIMITS, key, known)


def _out_of_range(key: str, value: float, instead: str, why: str) -> PreflightFinding:
    return error(
        "OUT_OF_RANGE", f"{key} is {value:g}", why, nearest=(f"+{instead}",), keys=(key,), source="METHOD section 8"
    )


def _unknown(key: str, name: str, known: tuple[str, ...]) -> PreflightFinding:
    return error(
        "UNKNOWN_OPTION",
        f"{key} has no {name!r}",
        f"the plug-ins know {', '.join(known)}",
        keys=(key,),
        source="sweep.health.stopping; sweep.health.limits",
    )
