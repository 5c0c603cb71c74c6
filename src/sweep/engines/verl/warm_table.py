"""Which verl settings a running trainer can take on between trials, and where each of them lives.

`place` is the one table behind two questions: may this trial run in that runtime (`needs_new_runtime`, asked by the
driver), and what has to be set back before it starts (asked inside verl). Every key that is not listed here, known to
verl or not, needs a new runtime: a forgotten key costs a start, a wrongly listed one would falsify a trial.

Source: verl 0.9.1; the module that reads a key after start decides its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from enum import Enum

from sweep.health.limits import Limits


class Place(Enum):
    """Where a setting is read after start, hence what makes a new value count."""

    DRIVER = "read from the driver's configuration at each step or trial"
    LOSS = "inside the loss functions that the workers hold"
    OPTIMIZER = "optimizer and learning-rate schedule, built anew for each trial"
    ENGINE = "micro-batch sizes of the training engines, read at each batch"
    AGENT = "sampling parameters, also in each agent loop worker's own copy"
    SERVER = "the rollout server's random state"
    CPU_SERVER = "the limits of our own rollout server"
    PLUGIN = "our own plug-ins, told at the start of each trial"
    INERT = "followers and seeds that nothing reads after start"


CPU_ROLLOUT = "cpu_transformers"
"""The rollout that re-reads its limits for each trial; vLLM fixes them when its engine starts."""

_ACTOR = "actor_rollout_ref.actor."
_CRITIC = "critic."
_REF = "actor_rollout_ref.ref."
_ROLLOUT = "actor_rollout_ref.rollout."


def _keys(prefix: str, names: str) -> list[str]:
    return [prefix + name for name in names.split()]


_OPTIM = (
    "lr lr_warmup_steps lr_warmup_steps_ratio lr_scheduler_type min_lr_ratio num_cycles weight_decay betas clip_grad"
)
_TRAINER = (
    "total_training_steps total_epochs critic_warmup test_freq save_freq val_before_train default_local_dir "
    "project_name experiment_name logger log_val_generations rollout_data_dir validation_data_dir "
    "max_actor_ckpt_to_keep max_critic_ckpt_to_keep"
)
_BAND = "band_low band_high band_raise band_lower band_interval coef_min coef_max"

_BY_PLACE: dict[Place, list[str]] = {
    Place.DRIVER: [
        *_keys("algorithm.", "gamma lam kl_penalty"),
        *_keys("algorithm.kl_ctrl.", f"type kl_coef target_kl horizon {_BAND}"),
        *_keys("data.", "seed shuffle train_batch_size"),
        *_keys(_ACTOR, "ppo_mini_batch_size ppo_epochs shuffle data_loader_seed rollout_n"),
        *_keys(_CRITIC, "ppo_mini_batch_size ppo_epochs shuffle data_loader_seed rollout_n"),
        *_keys("trainer.", _TRAINER),
    ],
    Place.LOSS: [
        *_keys(_ACTOR, "clip_ratio clip_ratio_low clip_ratio_high clip_ratio_c entropy_coeff kl_loss_coef"),
        *_keys(_ACTOR, "loss_agg_mode"),
        *_keys(_CRITIC, "cliprange_value loss_agg_mode"),
    ],
    Place.OPTIMIZER: [*_keys(_ACTOR + "optim.", _OPTIM), *_keys(_CRITIC + "optim.", _OPTIM)],
    Place.ENGINE: [
        *_keys(_ACTOR, "ppo_micro_batch_size_per_gpu use_dynamic_bsz ppo_max_token_len_per_gpu"),
        *_keys(_ROLLOUT, "log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu"),
        *_keys(_REF, "log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu"),
        *_keys(_CRITIC, "ppo_infer_max_token_len_per_gpu"),
    ],
    Place.AGENT: _keys(_ROLLOUT, "temperature top_p top_k n"),
    Place.SERVER: [_ROLLOUT + "seed"],
    Place.CPU_SERVER: _keys(_ROLLOUT, "max_num_seqs max_num_batched_tokens"),
    Place.PLUGIN: [
        *_keys("sweep.", "schedule_steps poll_seconds value_head_seed clip_decay clip_floor"),
        *_keys("sweep.", "stop_on min_free_gib keep_last best_gain"),
        *(f"sweep.limits.{f.name}" for f in fields(Limits)),
    ],
    Place.INERT: [
        _REF + "rollout_n",
        *_keys(_ROLLOUT + "trace.", "project_name experiment_name"),
        "distillation.teacher_models.teacher_model.inference.temperature",
        *_keys(_CRITIC, "use_dynamic_bsz ppo_max_token_len_per_gpu forward_max_token_len_per_gpu"),
        *_keys(_CRITIC, "ppo_micro_batch_size_per_gpu forward_micro_batch_size_per_gpu"),
        *(section + "seed" for section in (_ACTOR + "fsdp_config.", _REF + "fsdp_config.", _CRITIC + "fsdp.")),
    ],
}

PLACES: dict[str, Place] = {key: place for place, keys in _BY_PLACE.items() for key in keys}
"""Key to place, for every setting that can be changed warm by some rollout."""


def place(key: str, rollout: str) -> Place | None:
    """Where the setting lives, None if it needs a new runtime; a leading `+` in the key does not matter."""
    found = PLACES.get(key.lstrip("+"))
    return None if found is Place.CPU_SERVER and rollout != CPU_ROLLOUT else found


def keys_at(where: Place) -> tuple[str, ...]:
    """The settings that live there."""
    return tuple(_BY_PLACE[where])


def needs_new_runtime(changed: Iterable[str], rollout: str) -> tuple[str, ...]:
    """Those of the changed settings that cannot be changed warm, sorted; empty if the runtime can be used on."""
    return tuple(sorted(key.lstrip("+") for key in changed if place(key, rollout) is None))
