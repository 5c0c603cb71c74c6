"""`redraw`: the fresh parameters of a critic, drawn from a seed instead of the process's own random state.

Fresh are those that the checkpoint did not bring: the linear layer that turns hidden states into values. A checkpoint
with a trained head is left alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sweep.engines.verl.plugins.sampling import request_seed

FRESH_PARAMETERS = "sweep_fresh_parameters"
"""Attribute of a loaded model: the names of its parameters that were not in the checkpoint."""
DEFAULT_SPREAD = 0.02
"""Standard deviation where the model's configuration names none: transformers' own default."""


def fresh_names(module: nn.Module) -> tuple[str, ...]:
    """The names of the fresh parameters of a module, wrapped by FSDP or not."""
    return tuple(getattr(getattr(module, "_fsdp_wrapped_module", module), FRESH_PARAMETERS, ()))


def redraw(engine: Any, seed: int) -> tuple[str, ...]:
    """Draws the engine's fresh parameters anew; returns the names of the stored tensors that changed with them.

    Matrices are normal with the model's own initial spread, vectors zero, as transformers initialises them. Every
    rank draws the whole parameter and keeps its own shard.
    """
    names = fresh_names(engine.module)
    if not names:
        return ()
    parked = next(engine.module.parameters()).device.type
    if engine.is_param_offload_enabled:
        engine.to(device=_computing_device(), model=True, optimizer=False, grad=False)
    with torch.no_grad():
        changed = (_redraw_flat if _is_fsdp1(engine.module) else _redraw)(engine.module, names, seed)
    if engine.is_param_offload_enabled:
        engine.to(device=parked, model=True, optimizer=False, grad=False)
    return changed


def _computing_device() -> str:
    from verl.utils.device import get_device_name

    return str(get_device_name())


def _is_fsdp1(module: nn.Module) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(module, FullyShardedDataParallel)


def _redraw(module: nn.Module, names: tuple[str, ...], seed: int) -> tuple[str, ...]:
    drawn = {name: parameter for name, parameter in module.named_parameters() if name in names}
    for name, parameter in drawn.items():
        _assign(parameter, _values(name, parameter.shape, seed, module))
    return tuple(drawn)


def _redraw_flat(module: Any, names: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """The same within FSDP 1, where the head is a stretch of the root's flat parameter."""
    flat = module._handle.flat_param
    with module.summon_full_params(module, recurse=False, writeback=True):
        drawn = _redraw(module._fsdp_wrapped_module, names, seed)
    if set(drawn) != set(names):
        raise RuntimeError(f"the value head must lie in the root unit of FSDP, found {drawn} of {names} there")
    return tuple(name for name, stored in module.named_parameters() if stored is flat or name.endswith(names))


def _values(name: str, shape: torch.Size, seed: int, module: nn.Module) -> torch.Tensor:
    if len(shape) == 1:
        return torch.zeros(shape)
    spread = float(getattr(getattr(module, "config", None), "initializer_range", None) or DEFAULT_SPREAD)
    generator = torch.Generator().manual_seed(request_seed("value head", seed, name))
    return torch.empty(shape).normal_(0.0, spread, generator=generator)


def _assign(parameter: torch.Tensor, values: torch.Tensor) -> None:
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor):
        parameter.copy_(values.to(parameter.dtype))
        return
    local = parameter.to_local()
    placed = values.to(local.device, parameter.dtype)
    shard = distribute_tensor(placed, parameter.device_mesh, parameter.placements, src_data_rank=None)
    local.copy_(shard.to_local())
