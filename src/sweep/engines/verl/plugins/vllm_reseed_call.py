"""Asks vLLM to start its sampling anew, where `vllm_reseed` was chosen as worker extension."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from sweep.core import verl_keys as keys
from sweep.engines.verl.settings import CPU_RESEEDING_WORKER, RESEEDING_WORKER

RPC_SECONDS = 60.0


def reseed(trainer: Any) -> None:
    """Every vLLM worker samples from the trial's seed on; nothing happens without the extension."""
    if OmegaConf.select(trainer.config, keys.WORKER_EXTENSION, default=None) in (
        RESEEDING_WORKER,
        CPU_RESEEDING_WORKER,
    ):
        trainer.call_servers("collective_rpc", "warm_reseed", RPC_SECONDS, (trainer.seed,))
