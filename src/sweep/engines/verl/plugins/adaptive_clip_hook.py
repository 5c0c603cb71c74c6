"""Clips by `clip_schedule.max_norm` in every FSDP engine that was given a decay; others clip as verl does.

The step is the one of the learning-rate schedule, which verl moves once a training step: it starts anew with each
trial and comes back from a checkpoint, so there is no counter of our own to lose.
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine.fsdp import transformer_impl

from sweep.core.clip_schedule import max_norm
from sweep.engines.verl.plugins.workers import CLIP_SETTING

_own_step = transformer_impl.FSDPEngine.optimizer_step


def optimizer_step(engine: Any) -> Any:
    """verl's optimizer step under the threshold of this training step."""
    setting = getattr(engine, CLIP_SETTING, None)
    if setting is None:
        return _own_step(engine)
    config, start = engine.optimizer_config, engine.optimizer_config.clip_grad
    config.clip_grad = max_norm(float(start), engine.lr_scheduler.last_epoch, *setting)
    try:
        return _own_step(engine)
    finally:
        config.clip_grad = start


transformer_impl.FSDPEngine.optimizer_step = optimizer_step
