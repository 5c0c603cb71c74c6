"""`algorithm.kl_ctrl.type=band` gives verl's trainers a `KlBand`; every other type is verl's own."""

from __future__ import annotations

from typing import Any

import verl.trainer.ppo.core_algos as core_algos

from sweep.core.kl_band import BAND, KlBandSettings
from sweep.engines.verl.plugins.kl_band import KlBand

_own_controller = core_algos.get_kl_controller


def get_kl_controller(kl_ctrl: Any) -> Any:
    """The controller that the section `algorithm.kl_ctrl` asks for."""
    if kl_ctrl.type != BAND:
        return _own_controller(kl_ctrl)
    return KlBand(float(kl_ctrl.kl_coef), KlBandSettings.of(kl_ctrl))


core_algos.get_kl_controller = get_kl_controller
