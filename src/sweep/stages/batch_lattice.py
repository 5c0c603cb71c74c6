"""The batch sizes of a configuration as the mini-batch rule needs them, and back to verl's keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sweep.core import verl_keys as keys
from sweep.core.lattice import nearest_valid, project, valid_mini_batches
from sweep.core.overrides import Overrides
from sweep.core.stage import Stage

GAE = "gae"
"""verl's estimator that needs a critic, and its default."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Mini-batch and train batch in prompts, with what makes a pair of them valid."""

    mini_batch: int
    train_batch: int
    data_parallel: int = 1
    micro_batch_per_gpu: int | None = None
    rollout_n: int = 1
    sequence_parallel: int = 1
    log_prob_micro_batch_per_gpu: int | None = None
    pinned_critic_mini_batch: int | None = None
    critic_data_parallel: int = 1

    def moved_to(self, mini_batch: int, train_batch: int) -> Batch:
        """The same configuration at another lattice point."""
        return replace(self, mini_batch=mini_batch, train_batch=train_batch)


def batch_of(base: Overrides, stage: Stage) -> Batch:
    """The batch sizes that the base configuration states; verl's own defaults where it is silent.

    The actor's deprecated Ulysses key still overrides the live one when it is above 1. Source: verl
    workers/config/actor.py.
    """

    def number(key: str, default: int) -> int:
        value = base.get(key, default)
        return int(value) if isinstance(value, int | float) else default

    old = number(keys.ACTOR_ULYSSES_OLD, 1)
    sequence_parallel = old if old > 1 else max(1, number(keys.ULYSSES, 1))
    pinned = number(keys.CRITIC_MINI_BATCH, 0) or None
    gpus = number(keys.GPUS_PER_NODE, keys.DEFAULTS[keys.GPUS_PER_NODE]) * number(keys.NODES, 1)
    dynamic = base.get(keys.ACTOR_DYNAMIC_BATCH, False) is True
    micro = number(keys.ACTOR_MICRO_BATCH, 0)
    reference = number(keys.REF_MICRO_BATCH, 1)
    return Batch(
        mini_batch=number(stage.knobs[0].key, keys.DEFAULTS[keys.MINI_BATCH]),
        train_batch=number(keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH]),
        data_parallel=max(1, gpus // sequence_parallel),
        micro_batch_per_gpu=None if dynamic or micro < 1 else micro,
        rollout_n=number(keys.ROLLOUT_N, 1),
        sequence_parallel=sequence_parallel,
        log_prob_micro_batch_per_gpu=None if dynamic else math.lcm(number(keys.LOG_PROB_MICRO_BATCH, 1), reference),
        pinned_critic_mini_batch=pinned,
        critic_data_parallel=max(1, gpus // max(1, number(keys.CRITIC_ULYSSES, 1))) if _follows(base, pinned) else 1,
    )


def _follows(base: Overrides, pinned: int | None) -> bool:
    """Whether a critic is trained on the actor's mini-batches. Source: verl trainer/ppo/utils.py, config/critic."""
    enabled = base.get(keys.CRITIC_ENABLE)
    trained = enabled if isinstance(enabled, bool) else base.get(keys.ADV_ESTIMATOR, GAE) == GAE
    return trained and pinned is None


def nearest_batch(start: Batch, requested: float) -> Batch:
    """The valid pair nearest to a requested mini-batch in prompts, the train batch nearest to where it started."""
    point = project(
        max(1.0, requested),
        train_batch=start.train_batch,
        data_parallel=start.data_parallel,
        micro_batch_per_gpu=start.micro_batch_per_gpu,
        rollout_n=start.rollout_n,
        sequence_parallel=start.sequence_parallel,
        log_prob_micro_batch_per_gpu=start.log_prob_micro_batch_per_gpu,
        pinned_critic_mini_batch=start.pinned_critic_mini_batch,
        critic_data_parallel=start.critic_data_parallel,
    )
    return start.moved_to(point.mini_batch, point.train_batch)


def divisor_batch(start: Batch, requested: float, current: int) -> Batch:
    """The valid pair nearest by ratio with the train batch as it is, other than that of `current`; else the start."""
    sizes = valid_mini_batches(
        start.train_batch,
        data_parallel=start.data_parallel,
        micro_batch_per_gpu=start.micro_batch_per_gpu,
        rollout_n=start.rollout_n,
        critic_data_parallel=start.critic_data_parallel,
    )
    return start.moved_to(nearest_valid(requested, sizes, current) or start.mini_batch, start.train_batch)


def settings_of(stage: Stage, batch: Batch) -> Overrides:
    """The pair as settings: verl would pad a train batch that the mini-batch does not divide, so both are set."""
    return Overrides.of({stage.knobs[0].key: batch.mini_batch, keys.TRAIN_BATCH: batch.train_batch})
