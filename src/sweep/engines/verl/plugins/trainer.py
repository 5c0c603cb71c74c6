"""`trainer.v1.trainer_mode=sweep`: verl's synchronous PPO trainer, told apart only by what our plug-ins add to it.

Chooses our agent loops and replay buffer, keeps order and seeds reproducible, stretches the schedule, reports each
step and stops on request. What happens between trials is in `serving` and `trial_reset`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from omegaconf import open_dict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.metric_utils import RolloutMoELoadBalanceMetricsAccumulator
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from sweep.engines.mailbox import NoMailbox, open_mailbox
from sweep.engines.verl.plugins import (
    checkpoints,
    data_sets,
    id_state,
    kl_state,
    local_rewards,
    schedule,
    serving,
    step_metrics,
    vllm_reseed_call,
)
from sweep.engines.verl.plugins.kl_loss_band import KlLossBand
from sweep.engines.verl.plugins.ordering import RunningIds, in_data_order
from sweep.engines.verl.plugins.polling import make_prompt
from sweep.engines.verl.plugins.process_seeds import seed_process
from sweep.engines.verl.plugins.running_trial import RunningTrial
from sweep.engines.verl.plugins.trial_config import flattened
from sweep.engines.verl.plugins.trial_reset import TrialReset
from sweep.engines.verl.plugins.workers import TrialStart, start_trial
from sweep.engines.verl.settings import TRAINER_MODE
from sweep.engines.verl.warm_table import CPU_ROLLOUT
from sweep.health.plugin_settings import PluginSettings

_AGENT_LOOPS = "sweep.engines.verl.plugins.agent_loop.SweepAgentLoopManager"


@register_trainer(TRAINER_MODE)
class SweepTrainer(PPOTrainerSync):  # type: ignore[misc]
    """Serves the trials of a mailbox (`+sweep.reuse=true`), or trains its own configuration once."""

    reset_class = TrialReset

    def __init__(self, config: Any) -> None:
        self.made_at = time.time()
        self.config = config
        self.start_config = flattened(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # verl compares with this name
            config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = _AGENT_LOOPS
        self.read_plugin_settings()
        self.ids = RunningIds()
        self.resumed_from: Path | None = None
        trainer_base.uuid = self.ids
        self.trial = RunningTrial("", NoMailbox())
        self.meter = step_metrics.StepMeter(self)
        self.kl_loss_band = KlLossBand(self)
        self._start_processes_early()
        super().__init__(config)

    def _start_processes_early(self) -> None:
        """What verl would start after the training workers are ready starts beside them."""
        from sweep.engines.verl.plugins import agent_loop

        rollout, trainer = self.config.actor_rollout_ref.rollout, self.config.trainer
        agent_loop.start_workers(rollout.agent.num_workers)
        if rollout.name != CPU_ROLLOUT:
            return
        from sweep.engines.verl.plugins import rollout_cpu

        for rank in range(trainer.n_gpus_per_node * trainer.nnodes):
            rollout_cpu.start_server(rank, rollout, self.config.actor_rollout_ref.model.path)

    def read_plugin_settings(self) -> None:
        """Takes over what the section `sweep` of the configuration says now."""
        self.settings = PluginSettings.of(self.config)

    @property
    def seed(self) -> int:
        """The seed of everything that has no key of its own: the rollout's."""
        return int(self.config.actor_rollout_ref.rollout.seed)

    # Trials.

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's entry: returns when there are no more trials."""
        self.agent_loop_manager = agent_loop_manager
        if self.settings.reuse:
            serving.serve(self, open_mailbox())
        else:
            serving.run_once(self, open_mailbox())

    def train(self, trial: RunningTrial) -> None:
        """Trains from step 1 to the trial's end, on whatever state the trainer is in."""
        self.trial = trial
        trial.guard_by(self.settings.guard())
        self.checkpoints = checkpoints.Checkpoints.of(self)
        self.start_processes()
        super().fit(self.agent_loop_manager)

    def start_processes(self) -> None:
        """Seeds every process and gives workers and rollout what the plug-ins need, new process or not."""
        self.ids.restart(id_state.load(self))
        self.kl_loss_band.start()
        seed_process(self.seed)
        fresh = self.global_steps == 0
        warmup = int(self.config.trainer.critic_warmup)
        start = TrialStart(self.seed, self.settings.value_head_seed, self.settings.clip, fresh, warmup)
        self.call_workers(start_trial, start)
        self.agent_loop_manager.start_trial(self.seed, {})
        vllm_reseed_call.reseed(self)

    def renew_driver_state(self) -> None:
        """All that verl's trainer keeps between steps is as after its own `__init__`."""
        config = self.config
        if config.algorithm.use_kl_in_reward:
            self.kl_ctrl_in_reward = core_algos.get_kl_controller(config.algorithm.kl_ctrl)
        self.replay_buffer = self._build_replay_buffer()
        self.checkpoint_callback = build_checkpoint_callback(config)
        self._rollout_moe_lb_metrics_accumulator = RolloutMoELoadBalanceMetricsAccumulator(
            model_config=config.actor_rollout_ref.model
        )
        self.global_steps = self.local_trigger_step = self._restored_tq_prompt_count = 0
        self.resumed_from = None
        self._pending_sync_metrics: dict[str, float] = {}
        self._dump_executor.shutdown(wait=True)
        self._init_dump_executor()

    # The cluster.

    def call_workers(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The function's result in each training worker, by rank."""
        return list(ray.get([w.__ray_call__.remote(function, *arguments) for w in self.actor_rollout_wg.workers]))

    def call_servers(self, method: str, *arguments: Any, **named: Any) -> list[Any]:
        """The method's result in each rollout server."""
        servers = [server for replica in self.llm_server_manager.get_replicas() for server in replica.servers]
        return list(ray.get([getattr(s, method).remote(*arguments, **named) for s in servers]))

    def set_rollout_servers(self) -> None:
        """Our own rollout takes on the trial's limits and seed; vLLM's were fixed when it started."""
        rollout = self.config.actor_rollout_ref.rollout
        if rollout.name == CPU_ROLLOUT:
            self.call_servers("start_trial", self.seed, rollout.max_num_seqs, rollout.max_num_batched_tokens)

    # verl's hooks.

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        return make_prompt(buffer, self.settings.poll_seconds, lambda: self.agent_loop_manager.wait_until_idle())

    def get_reward_handles(self) -> Any:
        return local_rewards.handles(self.config, super().get_reward_handles())

    def _init_dataloader(self) -> None:
        with data_sets.kept(self):
            super()._init_dataloader()
        schedule.set_length(self.config, self.settings.schedule_steps)

    def prepare_step(self) -> Any:
        self.meter.rollout_starts()
        return super().prepare_step()

    def on_sample_end(self) -> None:
        self.meter.rollout_ends()
        super().on_sample_end()

    def on_validate_end(self) -> None:
        self.meter.validation_ends()
        super().on_validate_end()

    def _balance_batch(self, batch: Any, metrics: Any, **options: Any) -> Any:
        return super()._balance_batch(in_data_order(batch), metrics, **options)

    def _compute_metrics(self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        metrics.update(self.meter.metrics(batch, metrics) | self.kl_loss_band.follow(metrics))
        metrics.update(self.checkpoints.judged(metrics))
        if self.trial.observe(global_steps, metrics):
            self.total_training_steps = global_steps  # ends verl's loop after this step

    def _save_checkpoint(self) -> None:
        self.checkpoints.begins(self.global_steps)
        id_state.save(self)
        with checkpoints.verls_own_deletion_off(self.config):
            super()._save_checkpoint()
        kl_state.save(self)
        self.checkpoints.saved(self.global_steps)

    def _load_checkpoint(self) -> None:
        with checkpoints.only_complete_ones(self.config) as self.resumed_from:
            super()._load_checkpoint()
        kl_state.load(self)
