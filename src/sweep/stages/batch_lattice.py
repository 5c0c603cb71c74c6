"""The batch sizes of a configuration as the mini-batch rule needs them, and back to verl's keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sweep.core import verl_keys as keys
from sweep.core.lattice import nearest_valid, project, valid_mini_batches
from sweep.core.overrides import Overrides
from sweep.core.stage import Stage


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

    def moved_to(self, mini_batch: int, train_batch: int) -> Batch:
        """The same configuration at another lattice point."""
        return replace(self, mini_batch=mini_batch, train_batch=train_batch)


def batch_of(base: Overrides, stage: Stage) -> Batch:
    """The batch sizes that the base configuration states; verl's own defaults where it is silent."""

    def number(key: str, default: int) -> int:
        value = base.get(key, default)
        return int(value) if isinstance(value, int | float) else default

    sequence_parallel = number(keys.ULYSSES, 1)
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
        pinned_critic_mini_batch=number(keys.CRITIC_MINI_BATCH, 0) or None,
    )


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
    )
    return start.moved_to(point.mini_batch, point.train_batch)


def divisor_batch(start: Batch, requested: float, current: int) -> Batch:
    """The valid pair nearest by ratio with the train batch as it is, other than that of `current`; else the start."""
    sizes = valid_mini_batches(
        start.train_batch,
        data_parallel=start.data_parallel,
        micro_batch_per_gpu=start.micro_batch_per_gpu,
        rollout_n=start.rollout_n,
    )
    return start.moved_to(nearest_valid(requested, sizes, current) or start.mini_batch, start.train_batch)


def settings_of(stage: Stage, batch: Batch) -> Overrides:
    """The pair as settings: verl would pad a train batch that the mini-batch does not divide, so both are set."""
    return Overrides.of({stage.knobs[0].key: batch.mini_batch, keys.TRAIN_BATCH: batch.train_batch})
