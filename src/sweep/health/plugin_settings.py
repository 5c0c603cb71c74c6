"""`PluginSettings`: the section `sweep` of verl's configuration, which our plug-ins read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sweep.core.checkpoint_policy import BEST_GAIN
from sweep.core.clip_schedule import FLOOR
from sweep.health.limits import DEFAULT, Limits, limit_problem, limit_value
from sweep.health.stopping import STOP_ON, Guard

POLL_SECONDS = 0.05
"""Short against a step of the smallest model (0.5 s); verl's own 2.0 s is longer than many whole steps."""
WARMUP_STEPS = 2
"""The first step compiles and fills caches (10 times a later one); the second confirms the steady state."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What `+sweep.<name>=...` says; None leaves verl's own behaviour."""

    schedule_steps: int | None = None
    poll_seconds: float = POLL_SECONDS
    value_head_seed: int | None = None
    reuse: bool = False
    warmup_steps: int = WARMUP_STEPS
    clip_decay: float | None = None
    clip_floor: float = FLOOR
    stop_on: tuple[str, ...] = STOP_ON
    limits: Limits = DEFAULT
    min_free_gib: float | None = None
    keep_last: int | None = None
    best_gain: float = BEST_GAIN

    @classmethod
    def of(cls, config: Any) -> PluginSettings:
        """The settings of a whole verl configuration.

        Raises:
            ValueError: for a name that no plug-in reads, a limit that does not exist or cannot have its value.
        """
        section = config.get("sweep") or {}
        unknown = sorted(set(section) - set(NAMES))
        if unknown:
            raise ValueError(f"no plug-in reads sweep.{unknown[0]}; there are {', '.join(NAMES)}")
        given = {name: value for name, value in section.items() if value is not None}
        if "stop_on" in given:
            given["stop_on"] = tuple(given["stop_on"])
        if "limits" in given:
            given["limits"] = limits_from(given["limits"])
        return cls(**given)

    @property
    def clip(self) -> tuple[float, float] | None:
        """(decay, floor) of adaptive clipping, None if it is off."""
        return None if self.clip_decay is None else (self.clip_decay, self.clip_floor)

    def guard(self) -> Guard:
        """A guard for a trial that is about to begin.

        Raises:
            ValueError: for a finding that no guard knows.
        """
        return Guard(self.stop_on, self.limits)


NAMES = tuple(sorted(f.name for f in fields(PluginSettings)))
"""All that the section may say."""

LIMITS = tuple(f.name for f in fields(Limits))
"""All that `limits` in it may say."""


def limits_from(changes: Mapping[str, Any]) -> Limits:
    """The method's limits with these in their place.

    Raises:
        ValueError: for a limit that does not exist or cannot have its value.
    """
    for name, value in changes.items():
        if name not in LIMITS:
            raise ValueError(f"no limit is called sweep.limits.{name}; see sweep.health.limits")
        if problem := limit_problem(name, value):
            raise ValueError(f"sweep.limits.{name} {problem}")
    return replace(DEFAULT, **{name: limit_value(name, value) for name, value in changes.items()})
