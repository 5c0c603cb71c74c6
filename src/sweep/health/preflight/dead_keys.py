"""Keys that verl does not have, does not read, or reads under another name.

A dead key is worse than an unknown one: a sweep over it measures noise. Which keys are dead was found by experiment
on verl 0.9.1 (METHOD section 9). An unread key that a campaign sweeps is an error, one merely set is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.settings import Config, text, uses_megatron, uses_v1


@dataclass(frozen=True, slots=True)
class DeadKey:
    """A key without effect: what to set instead, why, verl's default, and whether verl demands it all the same."""

    key: str
    instead: str
    why: str
    default: object = None
    demanded: bool = False
    v1_only: bool = False


V1_CRITIC = "the V1 trainer cuts the critic's batches by tokens and overwrites this with the live key"

DEAD_KEYS = (
    DeadKey(
        "actor_rollout_ref.actor.grad_clip", keys.ACTOR_CLIP_GRAD, "declared in verl's configuration, read nowhere", 1.0
    ),
    DeadKey("critic.grad_clip", "critic.optim.clip_grad", "declared in verl's configuration, read nowhere", 1.0),
    DeadKey(
        "actor_rollout_ref.actor.clip_ratio",
        "actor_rollout_ref.actor.clip_ratio_low and actor_rollout_ref.actor.clip_ratio_high",
        "both have defaults of their own, and those win",
        0.2,
    ),
    DeadKey(
        "actor_rollout_ref.actor.optim.total_training_steps",
        keys.TOTAL_STEPS,
        "the trainer overwrites it with its own total",
        -1,
    ),
    DeadKey("critic.optim.total_training_steps", keys.TOTAL_STEPS, "the trainer overwrites it with its own total", -1),
    DeadKey(keys.CRITIC_MICRO_BATCH, f"+{keys.CRITIC_INFER_MAX_TOKENS}", V1_CRITIC, demanded=True, v1_only=True),
    DeadKey("critic.ppo_max_token_len_per_gpu", f"+{keys.CRITIC_INFER_MAX_TOKENS}", V1_CRITIC, 32768, v1_only=True),
    DeadKey(keys.CRITIC_DYNAMIC, f"+{keys.CRITIC_INFER_MAX_TOKENS}", V1_CRITIC, False, demanded=True, v1_only=True),
    DeadKey(
        "critic.forward_micro_batch_size_per_gpu", f"+{keys.CRITIC_INFER_MAX_TOKENS}", "never read, in either trainer"
    ),
    DeadKey("critic.forward_micro_batch_size", f"+{keys.CRITIC_INFER_MAX_TOKENS}", "never read, in either trainer"),
    DeadKey(
        "critic.forward_max_token_len_per_gpu",
        f"+{keys.CRITIC_INFER_MAX_TOKENS}",
        "never read, in either trainer",
        32768,
    ),
    DeadKey(
        "critic.ulysses_sequence_parallel_size",
        keys.CRITIC_ULYSSES,
        "deprecated, and unlike the actor's not passed on to the engine",
        1,
    ),
)

MOVED_KEYS = {
    keys.OLD_REWARD_PATH: keys.REWARD_PATH,
    "custom_reward_function.name": "reward.custom_reward_function.name",
    "reward_model.enable": keys.REWARD_MODEL_ENABLE,
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model.reward_manager": "reward.reward_manager.name",
}
"""Accepted for old scripts and then ignored. Source: verl trainer/config/legacy_reward_impl.yaml, main_ppo.py."""

DEPRECATED_KEYS = {
    "actor_rollout_ref.actor.optim.warmup_style": keys.ACTOR_SCHEDULER,
    "critic.optim.warmup_style": "critic.optim.lr_scheduler_type",
    keys.ACTOR_ULYSSES_OLD: keys.ULYSSES,
    "data.val_batch_size": "nothing: the engine schedules validation itself",
}
"""Still read, or harmless. Source: verl workers/config."""

OPEN_ADDITIONS = (
    keys.OWN_SECTION,
    *keys.BAND_KEYS,
    keys.CRITIC_INFER_MAX_TOKENS,
    "critic.ppo_infer_micro_batch_size_per_gpu",
    "ray_kwargs.ray_init.",
    "override_config.",
    "override_optimizer_config",
    "engine_kwargs.",
    "sampler_kwargs.",
    "mixed_precision.",
    "enable_sleep_mode",
    "apply_chat_template_kwargs",
    "reward_kwargs",
    "agent_loop_manager_class",
    "trainer.v1.",
    "hydra.",
)
"""Parts of keys that verl's YAML lacks and its code reads, so that a `+` in front of them is right."""


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on keys."""
    yield from _unknown(facts)
    for dead in DEAD_KEYS:
        if not (dead.v1_only and not uses_v1(config)) and not uses_megatron(config):
            yield from _dead(config, facts, dead)
    for old, new in MOVED_KEYS.items():
        if config.get(old) not in (None, False) and not text(config, new):
            yield _moved(old, new)
    for old, new in DEPRECATED_KEYS.items():
        if facts.set_on_purpose(old) and config.get(old) not in (None, 1):
            yield info(
                "DEPRECATED_KEY", f"{old} is deprecated", f"use {new}", keys=(old,), source="verl workers/config"
            )
    yield from _added(facts)


def _unknown(facts: Facts) -> Iterator[PreflightFinding]:
    for unknown in facts.unknown_keys:
        best = unknown.suggestions[0] if unknown.suggestions else "nothing alike"
        yield error(
            "UNKNOWN_KEY",
            f"verl has no key {unknown.key}; nearest: {best}",
            unknown.note or "verl would refuse to compose; adding it with + makes a setting that nothing reads",
            nearest=unknown.suggestions,
            keys=(unknown.key,),
            source="verl trainer/config; hydra-ecosystem/hydra#1912",
        )


def _dead(config: Config, facts: Facts, dead: DeadKey) -> Iterator[PreflightFinding]:
    if dead.key in facts.swept:
        make = error
    elif facts.given is None:
        make = warn
        if dead.demanded or dead.key not in config or config[dead.key] in (None, dead.default):
            return
    elif dead.key in facts.given:
        make = info if dead.demanded or config.get(dead.key) == dead.default else warn
    else:
        return
    yield make(
        "DEAD_KEY",
        f"{dead.key} has no effect" + (", although verl demands it" if dead.demanded else ""),
        f"{dead.why}; live: {dead.instead}",
        nearest=tuple(dead.instead.split(" and ")),
        keys=(dead.key,),
        source="METHOD section 9",
    )


def _moved(old: str, new: str) -> PreflightFinding:
    return error(
        "LEGACY_KEY_IGNORED",
        f"{old} is set and ignored",
        f"this verl reads {new}; the old key is accepted without a word",
        nearest=(new,),
        keys=(old, new),
        source="verl trainer/main_ppo.py",
    )


def _added(facts: Facts) -> Iterator[PreflightFinding]:
    for key in sorted(facts.added):
        if not any(part in key for part in OPEN_ADDITIONS):
            yield warn(
                "ADDED_KEY",
                f"+{key} adds a key that verl's configuration does not have",
                "verl either refuses it when it builds its workers or never reads it",
                keys=(key,),
                source="verl base_config.py",
            )
