"""The KL controller in checkpoints: verl saves everything else of a run, but starts its coefficient anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "sweep_kl_controller.json"


def _file(trainer: Any) -> Path:
    return Path(trainer.config.trainer.default_local_dir, f"global_step_{trainer.global_steps}", FILE)


def save(trainer: Any) -> None:
    """Beside verl's checkpoint of this step lies the controller's state, if it has one."""
    controller = getattr(trainer, "kl_ctrl_in_reward", None)
    if controller is not None and hasattr(controller, "state_dict"):
        _file(trainer).write_text(json.dumps(controller.state_dict()))


def load(trainer: Any) -> None:
    """The controller is as it was saved, if the run resumed from a checkpoint that has it."""
    controller = getattr(trainer, "kl_ctrl_in_reward", None)
    file = _file(trainer)
    if trainer.global_steps and controller is not None and hasattr(controller, "load_state_dict") and file.exists():
        controller.load_state_dict(json.loads(file.read_text()))
