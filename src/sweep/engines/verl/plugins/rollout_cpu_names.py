"""Makes `actor_rollout_ref.rollout.name=cpu_transformers` known to verl, without importing the server itself."""

from __future__ import annotations

from verl.workers.rollout import base, replica

NAME = "cpu_transformers"
_PACKAGE = "sweep.engines.verl.plugins"


def _load_replica() -> type:
    from sweep.engines.verl.plugins.rollout_cpu import CpuReplica

    return CpuReplica


base._ROLLOUT_REGISTRY[(NAME, "async")] = f"{_PACKAGE}.rollout_cpu.CpuServerAdapter"
replica.RolloutReplicaRegistry.register(NAME, _load_replica)
