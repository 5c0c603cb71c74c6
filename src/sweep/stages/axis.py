"""`Axis`: one knob as a line of positions, with the arm that stands at each of them.

A position is what makes the knob's effect even: the logarithm of its value, or the value itself. The mini-batch moves
on the lattice of valid pairs with its train batch; every other knob moves alone, rounded to what can be written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.stage import BracketRule, Knob, Stage
from sweep.stages.arms import Arm
from sweep.stages.batch_lattice import Batch, batch_of, nearest_batch, settings_of

DIGITS = 4
"""Significant digits of a value that is tried: finer differences than the noise of any run. Ours."""

_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Axis:
    """The knob around the arm that is held; `base` is what the arm's settings are laid over."""

    stage: Stage
    rule: BracketRule
    knob: Knob
    held: Arm
    base: Overrides

    @property
    def low(self) -> float:
        """Lowest position of the range."""
        return self._position(self.knob.low)

    @property
    def high(self) -> float:
        """Highest position of the range."""
        return self._position(self.knob.high)

    @property
    def start(self) -> float:
        """Where the held arm stands, moved into the range; its middle for a configuration that states no number."""
        value = self._standing
        if value is None or (self.knob.log and value <= 0):
            return (self.low + self.high) / 2
        return min(self.high, max(self.low, self._position(value)))

    @property
    def step(self) -> float:
        """The first move: by the rule's factor, or a share of the range."""
        if self.rule.first_factor is not None:
            return self._position(self._value(self.start) * self.rule.first_factor) - self.start
        up = (self.high - self.low) / self.rule.moves
        return up if self.start + up <= self.high + _SAME else -up

    def snap(self, position: float) -> float:
        """The position that is really run when this one is asked for."""
        if abs(position - self.start) < _SAME:
            return self.start
        return self._position(self._written(self._value(position)))

    def arm(self, position: float, aimed: float | None = None) -> Arm:
        """The arm at a position; the held one where it stands, unless the stage fixes something new on every arm."""
        standing = self._standing
        if standing is not None and abs(position - self.start) < _SAME and self._is_at_start(standing):
            return self.held if self.comparable else self._held_and_fixed(standing)
        value = self._written(self._value(position))
        moved = Overrides.of({self.knob.key: value})
        if self._on_lattice:
            moved = settings_of(self.stage, nearest_batch(self._batch, value))
        settings = self.stage.fixed.merged(self.held.settings).merged(moved)
        asked = Overrides.of({self.knob.key: _rounded(self._value(position if aimed is None else aimed))})
        return Arm(settings, self.held.requested.merged(asked), f"{short(self.knob)} {value:g}")

    @property
    def comparable(self) -> bool:
        """Whether the held arm differs from the values of the walk by the knob alone: it has all that is fixed."""
        here = self.base.merged(self.held.settings)
        return not here.difference(here.merged(self.stage.fixed))

    @property
    def outside(self) -> str:
        """That the held value lies outside the range, in words; empty if it does not, or is not stated."""
        standing = self._standing
        if standing is None or self._is_at_start(standing):
            return ""
        return f"{short(self.knob)} {standing:g} lies outside {self.knob.low:g} to {self.knob.high:g}"

    def _held_and_fixed(self, standing: float) -> Arm:
        value = int(standing) if self.knob.integer else standing
        settings = self.stage.fixed.merged(self.held.settings).merged({self.knob.key: value})
        return Arm(settings, self.held.requested, f"{short(self.knob)} {value:g} as before")

    @property
    def _on_lattice(self) -> bool:
        return self.knob is self.stage.knobs[0] and self.knob.key == keys.MINI_BATCH

    @property
    def _batch(self) -> Batch:
        return batch_of(self.base.merged(self.held.settings), self.stage)

    @property
    def _standing(self) -> float | None:
        """The knob's value in the held configuration."""
        value = self.base.merged(self.held.settings).get(self.knob.key)
        if value is None and self.knob.key in keys.DEFAULTS:
            value = keys.DEFAULTS[self.knob.key]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _is_at_start(self, standing: float) -> bool:
        if self.knob.log and standing <= 0:
            return False
        return abs(self._position(standing) - self.start) < _SAME

    def _position(self, value: float) -> float:
        return math.log(value) if self.knob.log else float(value)

    def _value(self, position: float) -> float:
        return math.exp(position) if self.knob.log else position

    def _written(self, value: float) -> float | int:
        """The nearest value that verl can be given."""
        if self._on_lattice:
            return nearest_batch(self._batch, value).mini_batch
        return round(value) if self.knob.integer else _rounded(value)


def short(knob: Knob) -> str:
    """The knob's name for people: the last part of its key."""
    return knob.key.rsplit(".", 1)[-1]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
