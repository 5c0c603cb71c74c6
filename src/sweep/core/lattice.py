"""The lattice of (mini-batch, train batch) pairs that verl trains on without padding.

`project` lets the train batch follow a mini-batch; `valid_mini_batches` and `nearest_valid` are for one that stays.

Sizes are in prompts, as in verl's keys. verl multiplies both by `rollout_n`, gives each data-parallel rank an equal
share of a mini-batch and cuts that share into micro-batches of fixed size; the critic's ranks are its own, and its
shares are cut by tokens. A pair is valid when

    train_batch % mini_batch == 0
    mini_batch * rollout_n % (data_parallel * micro_batch_per_gpu) == 0
    mini_batch * rollout_n % critic_data_parallel == 0, where the critic's mini-batch follows the actor's
    train_batch * rollout_n % (data_parallel * sequence_parallel) == 0
    train_batch * rollout_n % (data_parallel * log_prob_micro_batch_per_gpu) == 0

This module does not know the safe range of a knob nor the size of the dataset; its callers do.

Source: METHOD section 2; verl engine_workers.py (equal shares), workers/engine/utils.py (fixed micro-batches),
utils/config.py (train batch against GPUs), v1/trainer_base.py (padding of an uneven batch).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LatticePoint:
    """A valid pair next to what a rule asked for; both are kept because the report shows the difference."""

    mini_batch: int
    train_batch: int
    requested: float


def mini_batch_unit(
    *,
    data_parallel: int = 1,
    micro_batch_per_gpu: int | None = None,
    rollout_n: int = 1,
    critic_data_parallel: int = 1,
) -> int:
    """Smallest valid mini-batch in prompts; exactly its multiples are valid when the train batch may follow.

    Raises:
        ConfigError: a size below 1.
    """
    _require_positive(
        data_parallel=data_parallel,
        micro_batch_per_gpu=micro_batch_per_gpu,
        rollout_n=rollout_n,
        critic_data_parallel=critic_data_parallel,
    )
    rows = math.lcm(data_parallel * (micro_batch_per_gpu or 1), critic_data_parallel)
    return rows // math.gcd(rows, rollout_n)


def train_batch_unit(
    *,
    data_parallel: int = 1,
    rollout_n: int = 1,
    sequence_parallel: int = 1,
    log_prob_micro_batch_per_gpu: int | None = None,
) -> int:
    """Smallest train batch in prompts that spreads evenly over GPUs and log-prob micro-batches.

    Raises:
        ConfigError: a size below 1.
    """
    _require_positive(
        data_parallel=data_parallel,
        rollout_n=rollout_n,
        sequence_parallel=sequence_parallel,
        log_prob_micro_batch_per_gpu=log_prob_micro_batch_per_gpu,
    )
    gpus = data_parallel * sequence_parallel
    rows = math.lcm(gpus, data_parallel * (log_prob_micro_batch_per_gpu or 1))
    return rows // math.gcd(rows, rollout_n)


def valid_mini_batches(
    train_batch: int,
    *,
    data_parallel: int = 1,
    micro_batch_per_gpu: int | None = None,
    rollout_n: int = 1,
    critic_data_parallel: int = 1,
) -> tuple[int, ...]:
    """Every mini-batch that is valid beside an unchanged `train_batch`, rising; empty if there is none.

    Raises:
        ConfigError: a size below 1.
    """
    _require_positive(train_batch=train_batch)
    unit = mini_batch_unit(
        data_parallel=data_parallel,
        micro_batch_per_gpu=micro_batch_per_gpu,
        rollout_n=rollout_n,
        critic_data_parallel=critic_data_parallel,
    )
    return tuple(size for size in _divisors(train_batch) if size % unit == 0)


def project(
    requested: float,
    *,
    train_batch: int,
    data_parallel: int = 1,
    micro_batch_per_gpu: int | None = None,
    rollout_n: int = 1,
    sequence_parallel: int = 1,
    log_prob_micro_batch_per_gpu: int | None = None,
    pinned_critic_mini_batch: int | None = None,
    critic_data_parallel: int = 1,
) -> LatticePoint:
    """The valid pair whose mini-batch is nearest to `requested`, its train batch nearest to `train_batch`.

    The mini-batch comes first and the train batch follows. Only where another condition would multiply the train
    batch (352 with a log-prob micro-batch of 16 on 8 ranks needs 1408) the next nearest mini-batch is taken.
    Ties go to the smaller size, which needs less memory. A request below the smallest valid mini-batch gives that one.

    Args:
        requested: mini-batch in prompts that a rule asks for; need not be whole.
        train_batch: train batch in prompts to stay close to.
        data_parallel: ranks that share a mini-batch: GPUs over `sequence_parallel`.
        pinned_critic_mini_batch: the critic's own mini-batch where it does not follow the actor's.
        critic_data_parallel: ranks that share the critic's mini-batch where it follows; 1 where it does not.

    Raises:
        ConfigError: a size below 1, or a request that is not a positive finite number.

    Source: METHOD section 2. Ours: tie-breaking, and the log-prob micro-batch as a condition on the train batch.
    """
    _require_positive(train_batch=train_batch, pinned_critic_mini_batch=pinned_critic_mini_batch)
    if not math.isfinite(requested) or requested <= 0:
        raise ConfigError(f"a mini-batch must be a positive number of prompts, got {requested}")
    mini_unit = mini_batch_unit(
        data_parallel=data_parallel,
        micro_batch_per_gpu=micro_batch_per_gpu,
        rollout_n=rollout_n,
        critic_data_parallel=critic_data_parallel,
    )
    batch_unit = train_batch_unit(
        data_parallel=data_parallel,
        rollout_n=rollout_n,
        sequence_parallel=sequence_parallel,
        log_prob_micro_batch_per_gpu=log_prob_micro_batch_per_gpu,
    )
    return _nearest_pair(requested, train_batch, mini_unit, math.lcm(batch_unit, pinned_critic_mini_batch or 1))


def nearest_valid(requested: float, sizes: Sequence[int], besides: int) -> int | None:
    """Of valid sizes that cannot follow anything, the one nearest by ratio other than `besides`; None if there is none.

    By ratio, since a move multiplies: 179 lies nearer to 128 than to 256. A tie goes to the smaller size.
    """
    others = sorted(size for size in sizes if size != besides)
    return min(others, key=lambda size: abs(math.log(size / requested)), default=None)


def nearest_multiple(value: float, unit: int) -> int:
    """The positive multiple of `unit` nearest to `value`; a tie goes to the smaller one."""
    below = max(unit, math.floor(value / unit) * unit)
    above = below + unit
    return below if value - below <= above - value else above


def _nearest_pair(requested: float, train_batch: int, mini_unit: int, batch_unit: int) -> LatticePoint:
    pairs = (
        (mini_batch, nearest_multiple(train_batch, math.lcm(mini_batch, batch_unit)))
        for mini_batch in _outwards(requested, mini_unit)
    )
    mini_batch, followed = next(pair for pair in pairs if _stays_close(*pair, train_batch))
    return LatticePoint(mini_batch, followed, requested)


def _outwards(requested: float, unit: int) -> Iterator[int]:
    """All multiples of `unit`, nearest to `requested` first, the smaller of two equally near ones first."""
    below = math.floor(requested / unit)
    above = below + 1
    while True:
        if below > 0 and requested - below * unit <= above * unit - requested:
            yield below * unit
            below -= 1
        else:
            yield above * unit
            above += 1


def _stays_close(mini_batch: int, followed: int, train_batch: int) -> bool:
    """True if the train batch that follows is no further off than the mini-batch alone can force it.

    The nearest multiple of a size up to `train_batch` lies in 2/3 to 4/3 of it. Beyond that another condition,
    say a log-prob micro-batch that shares no factor with the mini-batch, has multiplied the train batch.
    Multiples of all units pass, so the search in `project` ends.
    """
    wanted = max(train_batch, mini_batch)
    return 2 * wanted <= 3 * followed <= 4 * wanted


def _divisors(number: int) -> list[int]:
    """All divisors of a positive number, rising."""
    low = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*low, *(number // size for size in low)})


def _require_positive(**sizes: int | None) -> None:
    """Returns only if every size that is given is at least 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ConfigError(f"{name} must be at least 1, got {size}")
