"""The band controller where the KL is a loss of the actor (`actor.use_kl_loss`) instead of a part of the reward.

verl bakes the coefficient of the loss into the workers' loss functions; a change of it is sent to them by the same
public method that the trainer uses at its start.

Source: verl workers/engine_workers.py, `set_loss_fn`; the rule is `kl_band`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from omegaconf import open_dict

from sweep.core.kl_band import BAND, KlBandSettings
from sweep.engines.verl.plugins import kl_state
from sweep.engines.verl.plugins.kl_band import KlBand
from sweep.health.findings.kl_band import AT_BOUND

KL_METRIC = "actor/kl_loss"


class KlLossBand:
    """Belongs to one trainer; `start` makes it forget the last trial."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._band: KlBand | None = None

    def start(self) -> None:
        """A controller for the coming trial, if its configuration asks for one."""
        config = self._trainer.config
        asked = config.actor_rollout_ref.actor.use_kl_loss and config.algorithm.kl_ctrl.type == BAND
        self._band = None
        if asked and not config.algorithm.use_kl_in_reward:
            coefficient = float(config.actor_rollout_ref.actor.kl_loss_coef)
            self._band = KlBand(coefficient, KlBandSettings.of(config.algorithm.kl_ctrl))
            saved = kl_state.stored(self._trainer, kl_state.IN_LOSS)
            if saved is not None:
                self._band.load_state_dict(saved)
                self._send(self._band.value)

    @property
    def controller(self) -> KlBand | None:
        """The trial's controller, if it has one."""
        return self._band

    def follow(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Takes the step's KL to the controller and its coefficient to the workers; the change, as a metric."""
        if self._band is None or KL_METRIC not in metrics:
            return {}
        before = self._band.value
        self._band.update(float(metrics[KL_METRIC]), 1)
        if self._band.value != before:
            self._send(self._band.value)
        return {"sweep/kl_coef_change": self._band.value - before, AT_BOUND: float(self._band.at_bound)}

    def _send(self, coefficient: float) -> None:
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.utils.losses import ppo_loss

        actor = self._trainer.config.actor_rollout_ref.actor
        with open_dict(actor):
            actor.kl_loss_coef = coefficient
        self._trainer.actor_rollout_wg.set_loss_fn(partial(ppo_loss, config=omega_conf_to_dataclass(actor)))
