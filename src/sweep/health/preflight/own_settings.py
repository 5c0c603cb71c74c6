"""Whether the settings of our plug-ins (`sweep.*`) make sense: clipping that decays, guards, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from sweep.core import verl_keys as keys
from sweep.core.clip_schedule import FLOOR
from sweep.core.within import Within
from sweep.health.limits import limit_problem
from sweep.health.plugin_settings import LIMITS, NAMES
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, warn
from sweep.health.preflight.settings import Config, number, texts
from sweep.health.stopping import STOP_ON

RANGES = {
    keys.SCHEDULE_STEPS: Within(low=1),
    "sweep.poll_seconds": Within(low=0, open_low=True),
    "sweep.warmup_steps": Within(low=0),
    "sweep.value_head_seed": Within(low=0),
    keys.CLIP_DECAY: Within(),
    keys.CLIP_FLOOR: Within(),
    keys.MIN_FREE_GIB: Within(low=0),
    keys.KEEP_LAST: Within(low=1),
    keys.BEST_GAIN: Within(low=0),
}
"""The numbers among the settings; of clipping, `_clip` knows more."""

WHOLE = frozenset({keys.SCHEDULE_STEPS, "sweep.warmup_steps", "sweep.value_head_seed", keys.KEEP_LAST})


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on the plug-ins' settings."""
    yield from _names(config)
    yield from _clip(config)
    yield from _guards(config)
    for key, within in RANGES.items():
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield _of_another_type(key, value, "it must be a number")
        elif not within.holds(value) or (key in WHOLE and value != int(value)):
            kind = "a whole number, " if key in WHOLE else ""
            yield _out_of_range(key, value, f"{key}={within.low:g}", f"it must be {kind}{within}")


def _names(config: Config) -> Iterator[PreflightFinding]:
    known = tuple(keys.OWN_SECTION + name for name in NAMES)
    for key in config:
        if key.startswith(keys.OWN_SECTION) and not key.startswith(f"{keys.LIMITS}.") and key not in known:
            yield _unknown(keys.OWN_SECTION.rstrip("."), key, known)


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
    for key, kind in ((keys.STOP_ON, list | tuple), (keys.LIMITS, Mapping)):
        if not isinstance(config.get(key), kind | None):
            yield _of_another_type(key, config[key], "it must be a list" if key == keys.STOP_ON else "it is a section")
    for name in texts(config, keys.STOP_ON):
        if name not in STOP_ON:
            yield _unknown(keys.STOP_ON, name, STOP_ON)
    for key, value in config.items():
        section, _, name = key.rpartition(".")
        if section != keys.LIMITS:
            continue
        if name not in LIMITS:
            yield _unknown(keys.LIMITS, key, tuple(f"{keys.LIMITS}.{known}" for known in LIMITS))
        elif problem := limit_problem(name, value):
            yield _of_another_type(key, value, f"it {problem}")


def _out_of_range(key: str, value: float, instead: str, why: str) -> PreflightFinding:
    return error(
        "OUT_OF_RANGE", f"{key} is {value:g}", why, nearest=(f"+{instead}",), keys=(key,), source="METHOD section 8"
    )


def _of_another_type(key: str, value: object, why: str) -> PreflightFinding:
    return error("OUT_OF_RANGE", f"{key} is {value!r}", why, keys=(key,), source="METHOD section 8")


def _unknown(key: str, name: str, known: tuple[str, ...]) -> PreflightFinding:
    return error(
        "UNKNOWN_OPTION",
        f"{key} has no {name!r}",
        f"the plug-ins know {', '.join(known)}",
        keys=(key,),
        source="sweep.health.stopping; sweep.health.limits",
    )
