"""A training worker back at its start: weights, optimizers, schedules and micro-batch sizes. Runs inside the workers.

Nothing here communicates between ranks: each copies its own shards, so that no rank can wait for another that failed.

Source: verl workers/engine/fsdp/transformer_impl.py, `_build_optimizer` and `_build_lr_scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import nn

from sweep.engines.verl.plugins.fingerprint import Fingerprint, fingerprints
from sweep.engines.verl.plugins.workers import REFERENCE, roles

_SNAPSHOT = "sweep_snapshot"
_FP16_GROWTH_INTERVAL = 400
"""Source: verl transformer_impl.py, `_build_fsdp_module`."""


@dataclass(frozen=True, slots=True)
class RoleState:
    """What the guard compares: one role on one rank."""

    weights: dict[str, Fingerprint]
    optimizer_entries: int = 0
    gradients: int = 0
    schedule_step: int = 0
    start_lr: float | None = None
    loss: dict[str, Any] = field(default_factory=dict)


def stored_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """This rank's share of every parameter and buffer, in memory that may be written in place.

    A forward pass without a backward leaves the root of an FSDP module gathered: FSDP 1 would lose what is written
    then without a word, FSDP 2 refuses it. So the module is sharded again first.
    """
    _shard(module)
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        yield name, tensor.data.to_local() if hasattr(tensor.data, "to_local") else tensor.data


def _shard(module: nn.Module) -> None:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.fsdp._runtime_utils import _lazy_init

    if isinstance(module, FullyShardedDataParallel):
        _lazy_init(module, module)  # before its first forward pass FSDP 1 has no shards to go back to
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
        elif isinstance(part, FullyShardedDataParallel) and part._handle and part._handle.uses_sharded_strategy:
            part._handle.reshard(True)


def take_snapshot(worker: Any) -> None:
    """Keeps a copy of the trained roles' weights in host memory, once in a runtime's life."""
    for role, part in roles(worker).items():
        if role != REFERENCE:
            copies = [tensor.detach().to("cpu", copy=True) for _, tensor in stored_tensors(part.engine.module)]
            setattr(part.engine, _SNAPSHOT, copies)


def restore_weights(worker: Any, role: str) -> None:
    """The role's weights are the snapshot's, bit for bit, in the memory where they were; gradients are gone."""
    engine = roles(worker)[role].engine
    with torch.no_grad():
        for (_, tensor), start in zip(stored_tensors(engine.module), getattr(engine, _SNAPSHOT), strict=True):
            tensor.copy_(start)
    for parameter in engine.module.parameters():
        parameter.grad = None


def renew_optimizer(worker: Any, role: str, config: Any) -> None:
    """A new optimizer and schedule by this configuration; the old one's moments are freed first."""
    part = roles(worker)[role]
    engine = part.engine
    engine.optimizer.state.clear()  # optimizer and schedule hold each other: the moments would stay until a collection
    engine.optimizer_config = part.optimizer_config = config
    engine.optimizer = engine._build_optimizer(engine.module)
    engine.lr_scheduler = engine._build_lr_scheduler(engine.optimizer)
    keeper = getattr(engine, "checkpoint_manager", None)
    if keeper is not None:
        keeper.optimizer, keeper.lr_scheduler = engine.optimizer, engine.lr_scheduler
    if getattr(engine, "scaler", None) is not None:
        engine.scaler = type(engine.scaler)(growth_interval=_FP16_GROWTH_INTERVAL)


def set_batching(worker: Any, batching: Mapping[str, Mapping[str, Any]]) -> None:
    """Role to the micro-batch fields of its engine, which verl reads at each batch."""
    found = roles(worker)
    for role, values in batching.items():
        for name, value in values.items() if role in found else ():
            setattr(found[role].engine_config, name, value)


def forget_peaks(worker: Any) -> None:
    """Memory peaks count from here; memory that the last trial cached is given back."""
    from verl.utils.device import get_torch_device

    device = get_torch_device()
    device.empty_cache()
    if device.is_available():
        device.reset_peak_memory_stats()


def state(worker: Any, loss_fields: Mapping[str, tuple[str, ...]]) -> dict[str, RoleState]:
    """Role to what can be seen of its state on this rank; `loss_fields` names what to read of each loss function."""
    return {role: _role_state(part, loss_fields.get(role, ())) for role, part in roles(worker).items()}


def _role_state(part: Any, loss_fields: tuple[str, ...]) -> RoleState:
    engine = part.engine
    weights = fingerprints(stored_tensors(engine.module))
    if engine.optimizer is None:
        return RoleState(weights)
    loss_config = part.loss_fn.keywords["config"]
    return RoleState(
        weights,
        optimizer_entries=len(engine.optimizer.state),
        gradients=sum(p.grad is not None for p in engine.module.parameters()),
        schedule_step=int(engine.lr_scheduler.last_epoch),
        start_lr=float(engine.lr_scheduler.base_lrs[0]),
        loss={name: getattr(loss_config, name) for name in loss_fields},
    )
