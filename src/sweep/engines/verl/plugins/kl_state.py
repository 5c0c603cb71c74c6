"""The KL controllers in checkpoints: verl saves everything else of a run, but starts its coefficient anew.

A controller that never moves is not saved: a run may be resumed with another fixed coefficient.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.engines.verl.checkpoint_files import step_folder

FILE = "sweep_kl_controller.json"
IN_REWARD, IN_LOSS = "in_reward", "in_loss"


def save(trainer: Any) -> None:
    """Beside verl's checkpoint of this step lies the state of each controller that moves."""
    found = {IN_REWARD: getattr(trainer, "kl_ctrl_in_reward", None), IN_LOSS: trainer.kl_loss_band.controller}
    states = {name: _state(controller) for name, controller in found.items()}
    file = step_folder(Path(trainer.config.trainer.default_local_dir), trainer.global_steps) / FILE
    file.write_text(json.dumps({name: state for name, state in states.items() if state is not None}))


def load(trainer: Any) -> None:
    """The controller in the reward is as it was saved, if the run resumed from a checkpoint that has it."""
    state, controller = stored(trainer, IN_REWARD), getattr(trainer, "kl_ctrl_in_reward", None)
    if state is None or controller is None:
        return
    if hasattr(controller, "load_state_dict"):
        controller.load_state_dict(state)
    elif _moves(controller):
        controller.value = state["value"]


def stored(trainer: Any, name: str) -> Mapping[str, float] | None:
    """The state of a controller in the checkpoint that the run resumed from; None if there is none."""
    file = trainer.resumed_from and trainer.resumed_from / FILE
    if not file or not file.exists():
        return None
    state: Mapping[str, float] | None = json.loads(file.read_text()).get(name)
    return state


def _state(controller: Any) -> Mapping[str, float] | None:
    if hasattr(controller, "state_dict"):
        state: Mapping[str, float] = controller.state_dict()
        return state
    return {"value": float(controller.value)} if _moves(controller) else None


def _moves(controller: Any) -> bool:
    """Whether this is verl's adaptive controller. Source: verl trainer/ppo/core_algos.py."""
    return hasattr(controller, "horizon")
