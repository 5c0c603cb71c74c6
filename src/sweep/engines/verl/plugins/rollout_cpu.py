"""verl's side of the CPU rollout: the replica that starts a server, and the adapter that pushes weights to it.

One rank, one replica, one server (`rollout_server_cpu`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from sweep.engines.verl.plugins.rollout_cpu_names import NAME
from sweep.engines.verl.plugins.rollout_server_cpu import CpuRolloutServer, ServerSettings

MOST_REQUESTS = 1000
"""At a time, waiting ones included. Source: verl workers/rollout/replica.py, `max_concurrency`."""

_early: dict[int, Any] = {}


def start_server(replica_rank: int, config: Any, model_path: str) -> Any:
    """The handle of a server that starts now; its replica will find it."""
    from verl.utils.fs import copy_to_local

    most = max(MOST_REQUESTS, 2 * config.max_num_seqs)
    options = {"name": server_name(replica_rank), "max_concurrency": most, "num_cpus": 0}
    settings = ServerSettings(**{f.name: getattr(config, f.name) for f in fields(ServerSettings)})
    _early[replica_rank] = ray.remote(CpuRolloutServer).options(**options).remote(settings, copy_to_local(model_path))
    return _early[replica_rank]


class CpuReplica(RolloutReplica):  # type: ignore[misc]
    """The server of one rank, which may have been started before."""

    async def launch_servers(self) -> None:
        rank = self.replica_rank
        server = _early.pop(rank, None) or start_server(rank, self.config, self.model_config.path)
        _early.pop(rank, None)
        await server.wake_up.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)


class CpuServerAdapter(BaseRollout):  # type: ignore[misc]
    """In a training worker: the way to the server of its rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        if self.config.tensor_model_parallel_size != 1:
            raise ValueError(
                f"rollout {NAME} runs on one rank, got tensor_model_parallel_size "
                f"{self.config.tensor_model_parallel_size}; set it to 1"
            )
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True
        self._server: Any = None

    @property
    def server(self) -> Any:
        """The server's handle; it is started after this worker, so it is looked up when first needed."""
        if self._server is None:
            self._server = ray.get_actor(server_name(self.replica_rank))
        return self._server

    async def resume(self, tags: list[str]) -> None:
        await self.server.wake_up.remote(tags)

    async def release(self) -> None:
        await self.server.sleep.remote()

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **unused: Any
    ) -> None:
        state = {name: tensor.detach().cpu().float().numpy() for name, tensor in weights}
        await self.server.load_weights.remote(state)
        if global_steps is not None:
            await self.server.set_global_steps.remote(global_steps)


def server_name(replica_rank: int) -> str:
    """The Ray name of a replica's server, unique in the trial's job."""
    return f"{NAME}_server_{replica_rank}_0"
