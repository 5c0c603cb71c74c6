"""Training engines on the CPU: the bare module for one rank, real FSDP2 for more.

Everything but the wrapping is verl's own FSDP engine: forward, loss, clipping, optimizer and schedule.
"""

from __future__ import annotations

import torch
from torch import nn
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead


class _CpuWrapping:
    """Wraps the module as far as the number of ranks needs it; computes in float32."""

    def _build_fsdp_module(self, module: nn.Module) -> nn.Module:
        config = self.engine_config  # type: ignore[attr-defined]
        forward_only = config.forward_only
        if torch.distributed.get_world_size() > 1:
            if config.strategy != "fsdp2":
                raise ValueError(f"several ranks on the CPU need strategy fsdp2, got {config.strategy}")
            # verl parks a forward-only model in pinned memory, which a machine without accelerators does not have.
            config.forward_only = False
            try:
                module = super()._build_fsdp_module(module)  # type: ignore[misc]
            finally:
                config.forward_only = forward_only
        self._autocast_dtype = torch.float32
        self.scaler = None
        if forward_only:
            self._is_offload_param = self._is_offload_optimizer = False
        return module


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuLanguageModelEngine(_CpuWrapping, FSDPEngineWithLMHead):  # type: ignore[misc]
    """Actor and reference."""


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuValueModelEngine(_CpuWrapping, FSDPEngineWithValueHead):  # type: ignore[misc]
    """Critic."""
