"""`KlBand`: the KL coefficient follows the KL to the reference, which shall stay in a band. Pure; verl's hook is apart.

Source: S0 section 2.2 (every 100 steps; above 0.18 times 1.2, below 0.04 times 0.8) and its range of coefficients in
section 1.3 (0.0005 to 0.01). Ours: the KL that is compared is the mean over the interval, not the last step's value,
and a non-finite KL counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

LOW_KL_NATS = 0.04
HIGH_KL_NATS = 0.18
RAISE_FACTOR = 1.2
LOWER_FACTOR = 0.8
INTERVAL_STEPS = 100
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
            ValueError: if the band is empty, a factor points the wrong way or the interval is not positive.
        """
        given: dict[str, Any] = {f.name: section[f.name] for f in fields(cls) if section.get(f.name) is not None}
        settings = cls(**given)
        settings.check()
        return settings

    def check(self) -> None:
        """Nothing, if the settings make sense together.

        Raises:
            ValueError: naming the relation that does not hold and the values found.
        """
        relations = {
            "band_low < band_high": self.band_low < self.band_high,
            "band_lower <= 1 <= band_raise": 0 < self.band_lower <= 1 <= self.band_raise,
            "band_interval >= 1": self.band_interval >= 1,
            "0 <= coef_min <= coef_max": 0 <= self.coef_min <= self.coef_max,
        }
        broken = [relation for relation, holds in relations.items() if not holds]
        if broken:
            raise ValueError(f"algorithm.kl_ctrl of type band needs {' and '.join(broken)}, got {self}")


class KlBand:
    """A controller with verl's surface: `value` and `update(current_kl, n_steps)`, called once a training step.

    `at_bound` says that the last reading asked for more than the bounds allow.
    """

    def __init__(self, coefficient: float, settings: KlBandSettings) -> None:
        self.value = coefficient
        self.settings = settings
        self.at_bound = False
        self._sum_nats = 0.0
        self._seen = 0
        self._steps = 0

    def update(self, current_kl: float, n_steps: int) -> None:
        """`value` is what the next step uses; `n_steps` (verl passes the batch size) plays no part."""
        self._steps += 1
        if math.isfinite(current_kl):
            self._sum_nats += current_kl
            self._seen += 1
        if self._steps < self.settings.band_interval:
            return
        if self._seen:
            mean_nats = self._sum_nats / self._seen
            self.value = next_coefficient(self.value, mean_nats, self.settings)
            self.at_bound = at_bound(self.value, mean_nats, self.settings)
        self._sum_nats, self._seen, self._steps = 0.0, 0, 0

    def state_dict(self) -> dict[str, float]:
        """All that a resumed run needs to go on as if it had never stopped."""
        return {"value": self.value, "sum_nats": self._sum_nats, "seen": self._seen, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """The controller continues where `state_dict` was taken."""
        self.value = float(state["value"])
        self._sum_nats = float(state["sum_nats"])
        self._seen, self._steps = int(state["seen"]), int(state["steps"])


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
