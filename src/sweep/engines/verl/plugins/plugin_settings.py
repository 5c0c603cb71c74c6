"""`PluginSettings`: the section `sweep` of verl's configuration, which our plug-ins read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sweep.engines.verl.plugins.adaptive_clip import FLOOR

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

    @classmethod
    def of(cls, config: Any) -> PluginSettings:
        """The settings of a whole verl configuration.

        Raises:
            ValueError: for a name that no plug-in reads.
        """
        section = config.get("sweep") or {}
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(section) - known)
        if unknown:
            raise ValueError(f"no plug-in reads sweep.{unknown[0]}; there are {', '.join(sorted(known))}")
        return cls(**{name: value for name, value in section.items() if value is not None})

    @property
    def clip(self) -> tuple[float, float] | None:
        """(decay, floor) of adaptive clipping, None if it is off."""
        return None if self.clip_decay is None else (self.clip_decay, self.clip_floor)
