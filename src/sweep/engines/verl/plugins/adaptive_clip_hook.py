"""Clips by `clip_schedule.max_norm` in every FSDP engine that was given a decay; others clip as verl does.

The step is the trainer's: that of the learning-rate schedule, which verl moves once for each training step that
updates the engine, and those before it. The schedule starts anew with each trial and comes back from a checkpoint, so
there is no counter of our own to lose.
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine.fsdp import transformer_impl

from sweep.engines.verl.plugins.workers import CLIP_SETTING, Clipping

_own_step = transformer_impl.FSDPEngine.optimizer_step


def optimizer_step(engine: Any) -> Any:
    """verl's optimizer step under the threshold of this training step."""
    setting: Clipping | None = getattr(engine, CLIP_SETTING, None)
    if setting is None:
        return _own_step(engine)
    config, start = engine.optimizer_config, engine.optimizer_config.clip_grad
    config.clip_grad = setting.norm(float(start), engine.lr_scheduler.last_epoch)
    try:
        return _own_step(engine)
    finally:
        config.clip_grad = start


transformer_impl.FSDPEngine.optimizer_step = optimizer_step
