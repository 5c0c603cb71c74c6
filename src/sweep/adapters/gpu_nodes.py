"""`on_cluster`: samplers of GPUs on every node of the Ray cluster that has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sweep.adapters.gpu_reading import GpuReading
from sweep.adapters.gpu_sampler import INTERVAL_SECONDS, GpuSampler

Result = TypeVar("Result")

START_SECONDS = 60.0
"""How long a node may take to start its sampler; a Ray worker takes a few seconds. Ours."""

CALL_SECONDS = 10.0
"""How long a sampler may take to answer before its node counts as lost. Ours."""


class NodeSampler:
    """A `GpuSampler` in a Ray actor that is bound to one node; a node that is lost has no readings any more."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._lost = ""

    def take(self) -> Sequence[GpuReading]:
        """The readings since the last call."""
        return self._ask("take", (), CALL_SECONDS)

    def problem(self) -> str:
        """Why there are none."""
        return self._lost or self._ask("problem", "", START_SECONDS) or self._lost

    def close(self) -> None:
        """End the actor. Safe to call again."""
        import ray

        if ray.is_initialized():
            ray.kill(self._actor)
        self._lost = self._lost or "its sampler has ended"

    def _ask(self, method: str, otherwise: Result, seconds: float) -> Result:
        import ray

        if self._lost:
            return otherwise
        try:
            found: Result = ray.get(getattr(self._actor, method).remote(), timeout=seconds)
        except (ray.exceptions.RayError, TimeoutError) as error:
            self._lost = f"its sampler does not answer: {type(error).__name__}"
            return otherwise
        return found


def on_cluster(interval_seconds: float = INTERVAL_SECONDS) -> Mapping[str, NodeSampler]:
    """A sampler on each node that has GPUs to Ray, by its address. Ray must be connected.

    They take no resources, so trials find all of theirs.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    found = {}
    for node in ray.nodes():
        if not node["Alive"] or not node["Resources"].get("GPU", 0):
            continue
        bound = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        options = {"num_cpus": 0, "max_concurrency": 2, "scheduling_strategy": bound}
        actor = ray.remote(GpuSampler).options(**options).remote(None, interval_seconds)
        found[node["NodeManagerAddress"]] = NodeSampler(actor)
    return dict(sorted(found.items()))
