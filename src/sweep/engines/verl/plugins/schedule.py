"""The learning-rate schedule of the whole run, in a trial that stops long before its end.

verl sets the length of the schedule to the length of the trial: a 500-step trial of a cosine would end at learning
rate 0. `sweep.schedule_steps` is the length of the run that the trial is the beginning of.

Source: S0 section 2.4; verl trainer/ppo/v1/trainer_base.py, `_init_dataloader`.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf, open_dict

OPTIMIZERS = ("actor_rollout_ref.actor.optim", "critic.optim")


def set_length(config: Any, schedule_steps: int | None) -> None:
    """Both optimizers' schedules get this length; None leaves verl's own, the length of the trial."""
    if schedule_steps is None:
        return
    with open_dict(config):
        for section in OPTIMIZERS:
            if OmegaConf.select(config, section) is not None:
                OmegaConf.update(config, f"{section}.total_training_steps", int(schedule_steps))
