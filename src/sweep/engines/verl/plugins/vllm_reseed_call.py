"""Asks vLLM to start its sampling anew, where `vllm_reseed` was chosen as worker extension."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls"
EXTENSIONS = (
    "sweep.engines.verl.plugins.vllm_reseed.ReseedingWorkerExtension",
    "sweep.engines.verl.plugins.vllm_reseed_cpu.CpuReseedingWorkerExtension",
)
RPC_SECONDS = 60.0


def reseed(trainer: Any) -> None:
    """Every vLLM worker samples from the trial's seed on; nothing happens without the extension."""
    if OmegaConf.select(trainer.config, KEY, default=None) in EXTENSIONS:
        trainer.call_servers("collective_rpc", "warm_reseed", RPC_SECONDS, (trainer.seed,))
