"""The band that the KL to the reference shall stay in: its settings, what must hold of them, and the controller's move.

Source: S0 section 2.2 (every 100 steps; above 0.18 times 1.2, below 0.04 times 0.8) and its range of coefficients in
section 1.3 (0.0005 to 0.01).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

BAND = "band"
"""The controller's type, beside verl's own `fixed` and `adaptive`."""

SECTION = "algorithm.kl_ctrl"
"""Where verl's configuration holds a controller's settings, ours beside its type."""

LOW_KL_NATS = 0.04
HIGH_KL_NATS = 0.18
RAISE_FACTOR = 1.2
LOWER_FACTOR = 0.8
INTERVAL_STEPS = 100
READINGS_A_TRIAL = 3
"""Readings that a trial too short for the method's interval still has. Ours: the last comes with the last step and
moves nothing any more, so that two of them act."""
MIN_COEFFICIENT = 0.0005
MAX_COEFFICIENT = 0.01


@dataclass(frozen=True, slots=True)
class KlBandSettings:
    """`algorithm.kl_ctrl.*` of a controller of type `band`."""

    band_low: float = LOW_KL_NATS
    band_high: float = HIGH_KL_NATS
    band_raise: float = RAISE_FACTOR
    band_lower: float = LOWER_FACTOR
    band_interval: int = INTERVAL_STEPS
    coef_min: float = MIN_COEFFICIENT
    coef_max: float = MAX_COEFFICIENT

    @classmethod
    def of(cls, section: Mapping[str, object]) -> KlBandSettings:
        """The settings named in the section, the rest at their defaults.

        Raises:
            ValueError: for what `broken` names.
        """
        settings = cls.unchecked(section)
        relations = [relation for relation, _ in broken(settings)]
        if relations:
            raise ValueError(f"{SECTION} of type {BAND} needs {' and '.join(relations)}, got {settings}")
        return settings

    @classmethod
    def unchecked(cls, section: Mapping[str, object]) -> KlBandSettings:
        """The same, whether they make sense or not."""
        given: dict[str, Any] = {f.name: section[f.name] for f in fields(cls) if section.get(f.name) is not None}
        return cls(**given)


NAMES = tuple(f.name for f in fields(KlBandSettings))


def interval_for(trial_steps: int, longest: int = INTERVAL_STEPS, readings: int = READINGS_A_TRIAL) -> int:
    """Steps between readings in a trial of so many: the longest interval that leaves it so many readings."""
    return max(1, min(longest, trial_steps // max(1, readings)))


def broken(settings: KlBandSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What should hold of the settings and does not, each with the names of those it is about."""
    not_numbers = tuple(name for name in NAMES if not _finite(getattr(settings, name)))
    if not_numbers:
        yield f"numbers for {', '.join(not_numbers)}", not_numbers
        return
    s = settings
    relations = (
        ("band_low < band_high", s.band_low < s.band_high, ("band_low", "band_high")),
        ("0 < band_lower <= 1", 0 < s.band_lower <= 1, ("band_lower",)),
        ("1 <= band_raise", s.band_raise >= 1, ("band_raise",)),
        (
            "a whole band_interval >= 1",
            s.band_interval >= 1 and s.band_interval == int(s.band_interval),
            ("band_interval",),
        ),
        ("0 <= coef_min <= coef_max", 0 <= s.coef_min <= s.coef_max, ("coef_min", "coef_max")),
    )
    yield from ((relation, names) for relation, holds, names in relations if not holds)


def next_coefficient(coefficient: float, mean_kl_nats: float, settings: KlBandSettings) -> float:
    """The coefficient after an interval with this mean KL, within its bounds; unchanged while the KL is in the band.

    A starting coefficient outside the bounds stays as it is until the rule moves it.
    """
    if mean_kl_nats > settings.band_high:
        return min(coefficient * settings.band_raise, max(settings.coef_max, coefficient))
    if mean_kl_nats < settings.band_low:
        return max(coefficient * settings.band_lower, min(settings.coef_min, coefficient))
    return coefficient


def at_bound(coefficient: float, mean_kl_nats: float, settings: KlBandSettings) -> bool:
    """Whether the KL is outside the band and the coefficient after its move is at the bound on that side."""
    if mean_kl_nats > settings.band_high:
        return coefficient >= settings.coef_max
    return mean_kl_nats < settings.band_low and coefficient <= settings.coef_min


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
