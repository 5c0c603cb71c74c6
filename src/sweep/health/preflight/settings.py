"""Typed reading of a flat configuration, and the `Layout` of processes that it asks for.

A value that is missing, null or of another type reads as None: preflight never fails on a half-known configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.core import verl_keys as keys

Config: TypeAlias = Mapping[str, object]

LARGEST = 2**31
"""Largest size or count that is taken seriously."""

MOST_GPUS = 2**20

MISSING = "???"
"""How a composed configuration spells a mandatory value that was not given (OmegaConf)."""


def whole(config: Config, key: str) -> int | None:
    """The value as a whole number; one that no size or count can have is none."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) <= LARGEST else None


def number(config: Config, key: str) -> float | None:
    """The value as a finite number; numerals in a string count, as verl converts them."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if math.isfinite(read) else None


def flag(config: Config, key: str) -> bool | None:
    """The value as a boolean."""
    value = config.get(key)
    return value if isinstance(value, bool) else None


def text(config: Config, key: str) -> str | None:
    """The value as a non-empty string."""
    value = config.get(key)
    return value if isinstance(value, str) and value not in ("", MISSING) else None


def texts(config: Config, key: str) -> tuple[str, ...]:
    """The value as strings: itself if it is one, its members if it is a list of them."""
    value = config.get(key)
    members = value if isinstance(value, list | tuple) else [value]
    return tuple(member for member in members if isinstance(member, str) and member not in ("", MISSING))


@dataclass(frozen=True, slots=True)
class Layout:
    """GPUs of a trial and how actor and critic share them; None where the configuration does not say."""

    gpus: int | None
    sequence_parallel: int
    critic_sequence_parallel: int
    rollout_n: int

    @property
    def data_parallel(self) -> int | None:
        """Actor ranks that share a mini-batch; None if the sequence-parallel size does not divide the GPUs."""
        return _ranks(self.gpus, self.sequence_parallel)

    @property
    def critic_data_parallel(self) -> int | None:
        """Critic ranks that share a mini-batch."""
        return _ranks(self.gpus, self.critic_sequence_parallel)


def layout(config: Config) -> Layout:
    """The layout that the configuration asks for.

    The actor's deprecated Ulysses key still overrides the live one when it is above 1; the critic's is not read.
    Source: verl workers/config/actor.py, workers/config/critic.py.
    """
    per_node, nodes = whole(config, keys.GPUS_PER_NODE) or 0, whole(config, keys.NODES) or 0
    old = whole(config, keys.ACTOR_ULYSSES_OLD) or 1
    return Layout(
        gpus=per_node * nodes if per_node > 0 and nodes > 0 and per_node * nodes <= MOST_GPUS else None,
        sequence_parallel=max(1, old if old > 1 else whole(config, keys.ULYSSES) or 1),
        critic_sequence_parallel=max(1, whole(config, keys.CRITIC_ULYSSES) or 1),
        rollout_n=max(1, whole(config, keys.ROLLOUT_N) or 1),
    )


def needs_critic(config: Config) -> bool:
    """Whether verl trains a critic. Source: verl trainer/ppo/utils.py."""
    enabled = flag(config, keys.CRITIC_ENABLE)
    return enabled if enabled is not None else text(config, keys.ADV_ESTIMATOR) == "gae"


def needs_reference(config: Config) -> bool:
    """Whether verl loads a reference model. Source: verl trainer/ppo/utils.py."""
    return bool(flag(config, keys.KL_IN_REWARD) or flag(config, keys.KL_LOSS))


def uses_v1(config: Config) -> bool:
    """Whether the default V1 trainer runs; its rules on batches differ from the older trainer's."""
    return flag(config, keys.USE_V1) is not False


def uses_megatron(config: Config) -> bool:
    """Whether the actor is Megatron's: the FSDP rules on ranks and optimizers do not hold then."""
    return text(config, keys.ACTOR_STRATEGY) == "megatron"


def sequence_tokens(config: Config) -> int | None:
    """Longest sequence in tokens: prompt and response together."""
    prompt, response = whole(config, keys.PROMPT_LENGTH), whole(config, keys.RESPONSE_LENGTH)
    return prompt + response if prompt is not None and response is not None else None


def _ranks(gpus: int | None, sequence_parallel: int) -> int | None:
    return gpus // sequence_parallel if gpus and gpus % sequence_parallel == 0 else None
