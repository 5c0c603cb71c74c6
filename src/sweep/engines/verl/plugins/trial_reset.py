"""`TrialReset`: a used trainer becomes what a new one with the trial's configuration would be.

The parts run in the order of `parts`, each for itself; the first trial of a runtime goes through them like any other.
Leaving one out is what the tests of this module do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from omegaconf import OmegaConf

from sweep.engines.verl.plugins import device_memory, fixed_batch, reset, trial_config
from sweep.engines.verl.plugins.guard import Expected, ResetIncomplete, complaints
from sweep.engines.verl.plugins.workers import ACTOR, CRITIC, REFERENCE
from sweep.engines.verl.warm_table import Place, keys_at

DRAIN_SECONDS = 120.0
"""What a stopped trial's last generation may take; then the runtime is given up."""

LOSS_FIELDS = {
    ACTOR: tuple(k.rpartition(".")[2] for k in keys_at(Place.LOSS) if k.startswith("actor_rollout_ref.")),
    CRITIC: tuple(k.rpartition(".")[2] for k in keys_at(Place.LOSS) if k.startswith("critic.")),
}


DEFAULT_CRITIC_TOKENS = 32_768
"""Source: verl workers/config/critic.py, `ppo_infer_max_token_len_per_gpu`."""


class TrialReset:
    """Belongs to one trainer; made before its first step, whose state every trial starts from."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        trainer.call_workers(reset.take_snapshot)
        self.start = trainer.call_workers(reset.state, LOSS_FIELDS)
        self.start_outputs = trainer.call_workers(fixed_batch.outputs)
        self.part_seconds: dict[str, float] = {}
        """Part to what it took in the last reset."""
        self.gaps: dict[str, float] = {}
        """Role to how far its outputs on the fixed batch were from the start's when the guard last looked."""

    def run(self, command: Mapping[str, Any]) -> None:
        """The trainer is ready for the command's trial.

        Raises:
            TrialRefused: the trial needs a new runtime; nothing has been touched.
            ResetIncomplete: some rank is not back at its start.
        """
        wanted = trial_config.compose(command["overrides"])
        trial_config.check(wanted, self.trainer.start_config)
        self.part_seconds.clear()
        for name, part in self.parts(command, wanted).items():
            begun = time.perf_counter()
            part()
            self.part_seconds[name] = round(time.perf_counter() - begun, 3)

    def parts(self, command: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Callable[[], None]]:
        """Name to action, in order."""
        return {
            "queue": self.empty_queue,
            "configuration": partial(self.configure, wanted),
            "rollout asleep": self.trainer.checkpoint_manager.sleep_replicas,
            "memory": self.require_memory,
            "data": self.trainer._init_dataloader,
            "actor weights": partial(self.trainer.call_workers, reset.restore_weights, ACTOR),
            "critic weights": self.restore_critic,
            "actor optimizer": partial(self.renew_optimizer, ACTOR),
            "critic optimizer": partial(self.renew_optimizer, CRITIC),
            "batching": self.set_batching,
            "losses": self.set_losses,
            "driver": self.trainer.renew_driver_state,
            "guard": self.guard,
            "peaks": partial(self.trainer.call_workers, reset.forget_peaks),
            "agent loops": self.set_agents,
            "rollout settings": self.trainer.set_rollout_servers,
            "rollout weights": partial(self.trainer.checkpoint_manager.update_weights, 0),
        }

    @property
    def _trained(self) -> tuple[str, ...]:
        return (ACTOR, CRITIC) if self.trainer.use_critic else (ACTOR,)

    def empty_queue(self) -> None:
        """No prompt of the last trial is being generated, and the queue holds nothing of it."""
        import transfer_queue

        self.trainer.agent_loop_manager.wait_until_idle(DRAIN_SECONDS)
        for partition, items in (transfer_queue.kv_list() or {}).items():
            if items:
                transfer_queue.kv_clear(keys=list(items), partition_id=partition)

    def configure(self, wanted: Mapping[str, Any]) -> None:
        """verl's configuration is the trial's, and passes verl's own checks."""
        from verl.utils.config import validate_config

        trainer = self.trainer
        trial_config.write(trainer.config, wanted)
        trainer.read_plugin_settings()
        validate_config(trainer.config, trainer.use_reference_policy, trainer.use_critic)

    def require_memory(self) -> None:
        """Nothing, if the trial's devices have the memory free that its settings ask for."""
        device_memory.refuse_without(self.trainer, self.trainer.settings.min_free_gib)

    def restore_critic(self) -> None:
        """The critic's weights are the start's, if there is a critic."""
        if self.trainer.use_critic:
            self.trainer.call_workers(reset.restore_weights, CRITIC)

    def renew_optimizer(self, role: str) -> None:
        """The role's optimizer and schedule are new."""
        if role in self._trained:
            self.trainer.call_workers(reset.renew_optimizer, role, self._config_of(role).optim)

    def set_batching(self) -> None:
        """The engines' micro-batches are the trial's."""
        self.trainer.call_workers(reset.set_batching, batching(self.trainer.config))

    def set_losses(self) -> None:
        """The workers' loss functions are the trial's, by verl's own method for it."""
        from verl.workers.utils.losses import ppo_loss, value_loss

        self.trainer.actor_rollout_wg.set_loss_fn(partial(ppo_loss, config=self._config_of(ACTOR)))
        if self.trainer.use_critic:
            self.trainer.critic_wg.set_loss_fn(partial(value_loss, config=self._config_of(CRITIC)))

    def set_agents(self) -> None:
        """The agent loops sample as the trial says."""
        config = self.trainer.config
        settings = {key: OmegaConf.select(config, key) for key in keys_at(Place.AGENT)}
        self.trainer.agent_loop_manager.start_trial(self.trainer.seed, settings)

    def guard(self) -> None:
        """Nothing, if every rank is at its start.

        Raises:
            ResetIncomplete: naming ranks, roles and what is left of the last trial.
        """
        found = self.complaints()
        if found:
            raise ResetIncomplete("reset left something behind: " + "; ".join(found))

    def complaints(self) -> list[str]:
        """What the guard has to say."""
        expected = {role: self._expected(role) for role in self._trained}
        found = complaints(self.trainer.call_workers(reset.state, LOSS_FIELDS), self.start, expected)
        self.gaps = fixed_batch.difference(self.trainer.call_workers(fixed_batch.outputs), self.start_outputs)
        return found + fixed_batch.complaints(self.gaps)

    def _expected(self, role: str) -> Expected:
        config = self._config_of(role)
        return Expected(float(config.optim.lr), {name: getattr(config, name) for name in LOSS_FIELDS[role]})

    def _config_of(self, role: str) -> Any:
        from verl.utils.config import omega_conf_to_dataclass

        config = self.trainer.config
        return omega_conf_to_dataclass(config.actor_rollout_ref.actor if role == ACTOR else config.critic)


def batching(config: Any) -> dict[str, dict[str, Any]]:
    """Role to its engine's micro-batch fields, filled from the keys that verl fills them from.

    Source: verl workers/engine_workers.py, `init_model`; trainer/ppo/v1/trainer_base.py, `_setup`.
    """
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    critic_tokens = config.critic.get("ppo_infer_max_token_len_per_gpu") or DEFAULT_CRITIC_TOKENS
    return {
        ACTOR: {
            "use_dynamic_bsz": actor.use_dynamic_bsz,
            "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
            "micro_batch_size_per_gpu": actor.ppo_micro_batch_size_per_gpu,
            "infer_max_token_len_per_gpu": rollout.log_prob_max_token_len_per_gpu,
            "infer_micro_batch_size_per_gpu": rollout.log_prob_micro_batch_size_per_gpu,
        },
        REFERENCE: {
            "use_dynamic_bsz": ref.log_prob_use_dynamic_bsz,
            "infer_max_token_len_per_gpu": ref.log_prob_max_token_len_per_gpu,
            "infer_micro_batch_size_per_gpu": ref.log_prob_micro_batch_size_per_gpu,
        },
        CRITIC: {"max_token_len_per_gpu": critic_tokens, "infer_max_token_len_per_gpu": critic_tokens},
    }
