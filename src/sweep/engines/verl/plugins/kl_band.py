"""`KlBand`: the KL coefficient follows the KL to the reference, which shall stay in a band. Pure; verl's hook is apart.

The move is `sweep.core.kl_band`'s. Ours: the KL that is compared is the mean over the interval, not the last step's
value, and a non-finite KL counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweep.core.kl_band import KlBandSettings, at_bound, next_coefficient


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
