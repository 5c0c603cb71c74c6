"""Which key was meant."""

from __future__ import annotations

import pytest

from sweep.health.preflight.suggest import suggest

KNOWN = [
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.optim.clip_grad",
    "actor_rollout_ref.actor.optim.lr_scheduler_type",
    "actor_rollout_ref.actor.fsdp_config.reshard_after_forward",
    "actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.rollout.val_kwargs.temperature",
    "actor_rollout_ref.rollout.max_num_seqs",
    "reward.reward_model.rollout.max_num_seqs",
    "algorithm.kl_ctrl.kl_coef",
    "algorithm.kl_penalty",
    "algorithm.lam",
    "critic.fsdp.param_offload",
    "data.dataloader_num_workers",
    "trainer.save_freq",
    "trainer.max_actor_ckpt_to_keep",
]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("algorithm.kl_ctrl.kl_coeff", "algorithm.kl_ctrl.kl_coef"),
        ("kl_ctrl.kl_coef", "algorithm.kl_ctrl.kl_coef"),
        ("actor.optim.lr", "actor_rollout_ref.actor.optim.lr"),
        ("rollout.max_num_seqs", "actor_rollout_ref.rollout.max_num_seqs"),
        ("dataloader_num_workers", "data.dataloader_num_workers"),
        ("actor_rollout_ref.rollout.val_temperature", "actor_rollout_ref.rollout.val_kwargs.temperature"),
        ("actor_rollout_ref.actor.optim.lr_decay_style", "actor_rollout_ref.actor.optim.lr_scheduler_type"),
        (
            "actor_rollout_ref.actor.fsdp_config.sharding_strategy",
            "actor_rollout_ref.actor.fsdp_config.reshard_after_forward",
        ),
        ("actor_rollout_ref.actor.optim.grad_clip", "actor_rollout_ref.actor.optim.clip_grad"),
        ("critic.model.fsdp_config.param_offload", "critic.fsdp.param_offload"),
        ("checkpoint.save_interval", "trainer.save_freq"),
        ("trainer.keep_last_n", "trainer.max_actor_ckpt_to_keep"),
        ("algorithm.lamda", "algorithm.lam"),
    ],
)
def test_the_first_suggestion_is_what_was_meant(key: str, meant: str) -> None:
    assert suggest(key, KNOWN).suggestions[0] == meant


def test_nothing_is_suggested_for_nonsense() -> None:
    assert suggest("zzz.qqq", KNOWN).suggestions == ()


def test_a_renamed_key_says_why() -> None:
    assert "Megatron" in suggest("actor_rollout_ref.actor.optim.lr_decay_style", KNOWN).note


def test_at_most_three_are_suggested() -> None:
    assert len(suggest("x.temperature", [f"{letter}.x.temperature" for letter in "abcdefg"]).suggestions) == 3
