"""What may change between the trials of a runtime, against verl's own configuration."""

from __future__ import annotations

import pytest

from sweep.engines.verl.compose import compose
from sweep.engines.verl.warm_table import CPU_ROLLOUT, PLACES, Place, keys_at, needs_new_runtime, place

BASE = [
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "critic.ppo_micro_batch_size_per_gpu=2",
    "algorithm.use_kl_in_reward=True",
]
ADDED_BY_US = ("sweep.", "algorithm.kl_ctrl.band_", "algorithm.kl_ctrl.coef_")
FOLLOWERS = {
    "actor_rollout_ref.actor.ppo_mini_batch_size": 7,
    "actor_rollout_ref.actor.ppo_epochs": 9,
    "actor_rollout_ref.actor.shuffle": True,
    "actor_rollout_ref.actor.use_dynamic_bsz": True,
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 999,
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum",
    "actor_rollout_ref.rollout.temperature": 0.3,
    "actor_rollout_ref.rollout.n": 3,
    "trainer.experiment_name": "x",
    "trainer.project_name": "y",
}
"""Keys that others follow by interpolation, with a value that is not their default."""


def flat(*overrides: str) -> dict[str, object]:
    return dict(compose([*BASE, *overrides]).config)


@pytest.fixture(scope="module")
def base() -> dict[str, object]:
    return flat()


def test_every_listed_key_is_verls_or_ours(base: dict[str, object]) -> None:
    unknown = [key for key in PLACES if key not in base and not key.startswith(ADDED_BY_US)]
    assert unknown == ["critic.ppo_infer_max_token_len_per_gpu"]  # a field of verl's that its YAML leaves out


@pytest.mark.parametrize(("key", "value"), FOLLOWERS.items())
def test_what_follows_a_warm_key_by_interpolation_is_warm_too(base: dict[str, object], key: str, value: object) -> None:
    changed = flat(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    different = [k for k in changed if changed[k] != base[k]]
    assert key in different and len(different) > 1
    assert needs_new_runtime(different, "vllm") == ()


@pytest.mark.parametrize(
    "key",
    [
        "data.max_response_length",
        "actor_rollout_ref.rollout.response_length",
        "actor_rollout_ref.rollout.gpu_memory_utilization",
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.enforce_eager",
        "actor_rollout_ref.model.path",
        "actor_rollout_ref.actor.strategy",
        "actor_rollout_ref.actor.use_kl_loss",
        "algorithm.adv_estimator",
        "algorithm.use_kl_in_reward",
        "critic.model.path",
        "reward.custom_reward_function.path",
        "trainer.n_gpus_per_node",
        "sweep.reuse",
        "sweep.warmup_steps",
        "no.such.key",
    ],
)
def test_what_decides_models_engines_or_processes_needs_a_new_runtime(key: str) -> None:
    assert place(key, "vllm") is None and place(key, CPU_ROLLOUT) is None
    assert needs_new_runtime([key, "algorithm.lam"], CPU_ROLLOUT) == (key,)


@pytest.mark.parametrize("key", keys_at(Place.CPU_SERVER))
def test_batching_limits_are_warm_in_our_rollout_and_fixed_in_vllm(key: str) -> None:
    assert place(key, CPU_ROLLOUT) is Place.CPU_SERVER
    assert place(key, "vllm") is None


def test_a_plus_in_front_of_a_key_changes_nothing() -> None:
    assert place("+algorithm.kl_ctrl.band_low", "vllm") is Place.DRIVER
    assert needs_new_runtime(["+no.such.key"], "vllm") == ("no.such.key",)


def test_no_key_is_at_two_places() -> None:
    listed = [key for where in Place for key in keys_at(where)]
    assert len(listed) == len(set(listed)) == len(PLACES)
