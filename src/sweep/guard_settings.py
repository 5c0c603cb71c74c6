"""`guards:` and `checkpoints:` of the configuration as settings of our plug-ins, those that differ from the method's.

What is as the method has it is left out, so that a trial's settings say only what was chosen. The thresholds of what
judges from outside, `guards.hardware` and `preflight:`, are no settings of a trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sweep.core import verl_keys as keys
from sweep.core.checkpoint_policy import BEST_GAIN, KEEP_LAST, SAVE_STEPS
from sweep.core.clip_schedule import FLOOR
from sweep.core.device_memory import MIN_FREE_GIB
from sweep.core.within import Within, require
from sweep.errors import ConfigError
from sweep.yaml_values import built

if TYPE_CHECKING:
    from sweep.health.hardware import HardwareLimits
    from sweep.health.limits import Limits
    from sweep.health.preflight.limits import PreflightLimits


@dataclass
class GuardsConfig:
    """`guards:`"""

    stop_on: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    min_free_gib: float = MIN_FREE_GIB
    clip_decay: float | None = None
    clip_floor: float = FLOOR


@dataclass
class CheckpointsConfig:
    """`checkpoints:`"""

    save_steps: int = SAVE_STEPS
    keep_last: int = KEEP_LAST
    best_gain: float = BEST_GAIN


def settings_of(guards: GuardsConfig, checkpoints: CheckpointsConfig) -> list[tuple[str, object]]:
    """The plug-ins' settings, each with Hydra's `+`.

    Raises:
        ConfigError: for a guard or a limit that does not exist, or a number that cannot work.
    """
    _check(guards, checkpoints)
    changed: dict[str, object] = {}
    if guards.stop_on != list(_stop_on()):
        changed[keys.STOP_ON] = list(guards.stop_on)
    changed |= {f"{keys.LIMITS}.{name}": value for name, value in _changed_limits(guards.limits).items()}
    if guards.clip_decay is not None:
        changed |= {keys.CLIP_DECAY: guards.clip_decay, keys.CLIP_FLOOR: guards.clip_floor}
    for key, value, default in (
        (keys.MIN_FREE_GIB, guards.min_free_gib, MIN_FREE_GIB),
        (keys.KEEP_LAST, checkpoints.keep_last, KEEP_LAST),
        (keys.BEST_GAIN, checkpoints.best_gain, BEST_GAIN),
    ):
        changed |= {key: value} if value != default else {}
    return [(f"+{key}", value) for key, value in changed.items()]


def _stop_on() -> Sequence[str]:
    from sweep.health.stopping import STOP_ON

    return STOP_ON


def limits_of(guards: GuardsConfig) -> Limits:
    """The thresholds of curves, those of `guards.limits` in place of the method's; `settings_of` has checked them."""
    from dataclasses import replace

    from sweep.health.limits import DEFAULT

    return replace(DEFAULT, **_changed_limits(guards.limits))


def hardware_limits_of(guards: GuardsConfig) -> HardwareLimits:
    """The thresholds of what the GPUs show, those of `guards.hardware` in place of the method's.

    Raises:
        ConfigError: for a name that there is not, or a value out of its range.
    """
    from sweep.health.hardware import HardwareLimits

    return built(HardwareLimits, "guards.hardware", guards.hardware)


def preflight_limits_of(preflight: Mapping[str, Any]) -> PreflightLimits:
    """The thresholds of preflight, those of `preflight:` in place of the method's.

    Raises:
        ConfigError: for a name that there is not, a value out of its range, or a range whose ends are the wrong way
            round.
    """
    from sweep.health.preflight.limits import PreflightLimits

    return built(PreflightLimits, "preflight", preflight)


def _changed_limits(limits: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that are not the method's, in the type that the method's have."""
    from sweep.health.limits import DEFAULT, limit_value

    typed = {name: limit_value(name, value) for name, value in limits.items()}
    return {name: value for name, value in typed.items() if value != getattr(DEFAULT, name)}


def _check(guards: GuardsConfig, checkpoints: CheckpointsConfig) -> None:
    from sweep.health.limits import Limits, limit_problem

    for name in guards.stop_on:
        if name not in _stop_on():
            raise ConfigError(f"guards.stop_on must be among {', '.join(_stop_on())}, got {name!r}")
    known = [f.name for f in fields(Limits)]
    for name, value in guards.limits.items():
        if name not in known:
            raise ConfigError(f"guards.limits has no {name!r}; there are {', '.join(known)}")
        if problem := limit_problem(name, value):
            raise ConfigError(f"guards.limits.{name} {problem}")
    hardware_limits_of(guards)
    share = Within(low=0, high=1, open_low=True)
    require("guards.min_free_gib", guards.min_free_gib, Within(low=0))
    require("checkpoints.save_steps", checkpoints.save_steps, Within(low=1))
    require("checkpoints.keep_last", checkpoints.keep_last, Within(low=1))
    require("checkpoints.best_gain", checkpoints.best_gain, Within(low=0))
    require("guards.clip_decay", guards.clip_decay, share)
    require("guards.clip_floor", guards.clip_floor, share)
