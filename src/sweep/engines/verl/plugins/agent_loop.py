"""Agent loop workers that tell each request who it is, and say when they have nothing left to do.

verl's own workers stay as they are otherwise: prompts, rewards and the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from sweep.engines.verl.plugins.workers import seed_process
from sweep.engines.verl.warm_table import CPU_ROLLOUT

_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class SampleAwareWorker(_Worker):  # type: ignore[misc]
    """Adds the sample's id and session to the sampling parameters of a rollout that seeds each request by them."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        if self.config.actor_rollout_ref.rollout.name == CPU_ROLLOUT:
            sampling_params = {**sampling_params, "sample": f"{kwargs['uid']}_{kwargs['session_id']}"}
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)

    async def wait_until_idle(self) -> None:
        """Returns when every prompt handed to this worker is finished or failed."""
        while self.background_tasks:
            await asyncio.wait(set(self.background_tasks))

    async def start_trial(self, seed: int, settings: Mapping[str, Any]) -> None:
        """Takes on the trial's settings, dotted key to value."""
        seed_process(seed)
        with open_dict(self.config):
            for key, value in settings.items():
                OmegaConf.update(self.config, key, value, merge=False)


class SweepAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager over our workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SampleAwareWorker)

    def wait_until_idle(self, timeout_seconds: float | None = None) -> None:
        """Returns when no worker has a prompt left.

        Raises:
            ray.exceptions.GetTimeoutError: if it takes longer than the time-out.
        """
        ray.get([w.wait_until_idle.remote() for w in self.agent_loop_workers], timeout=timeout_seconds)

    def start_trial(self, seed: int, settings: Mapping[str, Any]) -> None:
        """Every worker takes on the trial's settings."""
        ray.get([w.start_trial.remote(seed, dict(settings)) for w in self.agent_loop_workers])
