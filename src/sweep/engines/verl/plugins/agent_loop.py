"""Agent loop workers that tell each request who it is, and say when they have nothing left to do.

They do what verl's own do, with less work for each prompt: the agent of single-turn tasks, which keeps nothing between
prompts, is made once, and the queue is written to in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import hydra
import ray
from omegaconf import OmegaConf, open_dict
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.rollout_trace import RolloutTraceConfig

from sweep.engines.verl.plugins.early_actors import EarlyActors
from sweep.engines.verl.plugins.gathering import GatheringQueue
from sweep.engines.verl.plugins.process_seeds import seed_process
from sweep.engines.verl.plugins.queue_fields import TRAINING, for_training
from sweep.engines.verl.warm_table import CPU_ROLLOUT

SINGLE_TURN = "single_turn_agent"
_Worker: Any = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class


class SampleAwareWorker(_Worker):  # type: ignore[misc]
    """Adds the sample's id and session to the sampling parameters of a rollout that seeds each request by them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._join_samples = agent_loop_tq.list_of_dict_to_tensordict
        self._queue = GatheringQueue(agent_loop_tq.tq, self._joined)
        agent_loop_tq.tq = self._queue
        agent_loop_tq.list_of_dict_to_tensordict = list  # the queue joins samples when it writes them
        super().__init__(*args, **kwargs)
        self._single_turn: Any = None

    def _joined(self, partition: str, samples: list[dict[str, Any]]) -> Any:
        if partition == TRAINING:
            samples = [for_training(s, keeps_prompt=self.reward_loop_worker_handles is None) for s in samples]
        return self._join_samples(samples)

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, **kwargs: Any
    ) -> Any:
        if self.config.actor_rollout_ref.rollout.name == CPU_ROLLOUT:
            sampling_params = {**sampling_params, "sample": f"{kwargs['uid']}_{kwargs['session_id']}"}
        if agent_name != SINGLE_TURN or RolloutTraceConfig.get_backend() is not None:
            return await super()._run_agent_loop(sampling_params, trajectory, agent_name=agent_name, **kwargs)
        kwargs.pop("trace", None)
        output = await self._agent().run(sampling_params, **kwargs)
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)

    def _agent(self) -> Any:
        if self._single_turn is None:
            # As verl makes one for each prompt. Source: verl experimental/agent_loop/agent_loop.py, `_run_agent_loop`.
            self._single_turn = hydra.utils.instantiate(
                config=agent_loop._agent_loop_registry[SINGLE_TURN],
                trainer_config=agent_loop.DictConfigWrap(config=self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=self.hf_model_type,
                dataset_cls=self.dataset_cls,
                data_config=agent_loop.DictConfigWrap(self.config.data),
                tools=agent_loop.ToolListWrap(self.tools),
            )
        return self._single_turn

    async def wait_until_idle(self) -> None:
        """Returns when every prompt handed to this worker is finished or failed, and the queue has what came of it."""
        while self.background_tasks:
            await asyncio.wait(set(self.background_tasks))
        await self._queue.flush()

    async def start_trial(self, seed: int, settings: Mapping[str, Any]) -> None:
        """Takes on the trial's settings, dotted key to value."""
        seed_process(seed)
        with open_dict(self.config):
            for key, value in settings.items():
                OmegaConf.update(self.config, key, value, merge=False)


class WaitingWorker(SampleAwareWorker):
    """A worker that is started first and told what to work on later."""

    def __init__(self) -> None:
        """Nothing is known yet."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        """The worker is what it would be if made with these arguments."""
        super().__init__(*args, **kwargs)


_early: list[EarlyActors] = []


def start_workers(count: int) -> None:
    """Starts so many workers for the next manager of this process."""
    _early[:] = [EarlyActors(WaitingWorker, count)]


class SweepAgentLoopManager(agent_loop_tq.AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager over our workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not _early:
            start_workers(self.rollout_config.agent.num_workers)
        self.agent_loop_workers_class = _early.pop()

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        await asyncio.gather(*self.agent_loop_workers_class.begun)

    def wait_until_idle(self, timeout_seconds: float | None = None) -> None:
        """Returns when no worker has a prompt left.

        Raises:
            ray.exceptions.GetTimeoutError: if it takes longer than the time-out.
        """
        ray.get([w.wait_until_idle.remote() for w in self.agent_loop_workers], timeout=timeout_seconds)

    def start_trial(self, seed: int, settings: Mapping[str, Any]) -> None:
        """Every worker takes on the trial's settings."""
        ray.get([w.start_trial.remote(seed, dict(settings)) for w in self.agent_loop_workers])
