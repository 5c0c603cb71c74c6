"""Whether the batch sizes of actor and critic fit each other and the GPUs, with dynamic batches on or off.

verl checks some of this at its start, and skips those checks when dynamic batches are on; the rest fails after the
models are loaded, or trains on padding. Sizes are in prompts unless a name says rows: rows are prompts x rollout.n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.lattice import mini_batch_unit, nearest_multiple
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, warn
from sweep.health.preflight.settings import Config, flag, layout, needs_critic, uses_megatron, uses_v1, whole

ENGINE = "verl workers/engine_workers.py, workers/engine/utils.py"
MICRO_MOST = 1024
"""Largest micro-batch that is proposed."""

NORMALISATION = "verl-project/verl#405, PR #382, PR #833"


@dataclass(frozen=True, slots=True)
class Role:
    """A model that trains: its batch keys and the ranks that share its mini-batch."""

    name: str
    mini_key: str
    micro_key: str
    ranks: int
    mini: int
    micro: int | None
    micro_counts: bool


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on train batch, mini-batches and micro-batches."""
    train, place = whole(config, keys.TRAIN_BATCH), layout(config)
    if train is None or uses_megatron(config):
        return
    for role in roles(config):
        yield from _mini_against_train(role, train, uses_v1(config))
        yield from _share_of_a_rank(role, place.rollout_n)
    yield from _train_against_gpus(config, train)


def roles(config: Config) -> Iterator[Role]:
    """Actor and, where verl trains one, critic; a role with unknown ranks or mini-batch is left out."""
    place = layout(config)
    mini = whole(config, keys.MINI_BATCH)
    if place.data_parallel and mini is not None:
        micro = None if flag(config, keys.ACTOR_DYNAMIC_BATCH) else whole(config, keys.ACTOR_MICRO_BATCH)
        yield Role("actor", keys.MINI_BATCH, keys.ACTOR_MICRO_BATCH, place.data_parallel, mini, micro, True)
    mini = whole(config, keys.CRITIC_MINI_BATCH)
    if needs_critic(config) and place.critic_data_parallel and mini is not None:
        micro = None if flag(config, keys.CRITIC_DYNAMIC) else whole(config, keys.CRITIC_MICRO_BATCH)
        counts = not uses_v1(config)
        yield Role(
            "critic", keys.CRITIC_MINI_BATCH, keys.CRITIC_MICRO_BATCH, place.critic_data_parallel, mini, micro, counts
        )


def fitting_micro_batches(rows: int) -> list[int]:
    """Micro-batch sizes that divide so many rows, rising, up to the largest that is of practical use."""
    return [size for size in range(1, min(rows, MICRO_MOST) + 1) if rows % size == 0]


def _mini_against_train(role: Role, train: int, v1: bool) -> Iterator[PreflightFinding]:
    if role.mini < 1 or train < 1:
        key, size = (role.mini_key, role.mini) if role.mini < 1 else (keys.TRAIN_BATCH, train)
        yield error("BATCH_NOT_POSITIVE", f"{key} is {size}", "a batch holds at least one prompt", keys=(key,))
    elif train < role.mini:
        yield error(
            "TRAIN_LT_MINI",
            f"{keys.TRAIN_BATCH} is {train}, less than {role.mini_key} {role.mini}",
            "a step has fewer prompts than one update needs; verl refuses it, or pads it when dynamic batches are on",
            nearest=(f"{keys.TRAIN_BATCH}={role.mini}", f"{role.mini_key}={train}"),
            keys=(keys.TRAIN_BATCH, role.mini_key),
            source="verl workers/config/actor.py, workers/config/critic.py; verl PR #559",
            computed={"role": role.name, "train": train, "mini": role.mini},
        )
    elif train % role.mini:
        make = warn if v1 else error
        yield make(
            "TRAIN_NOT_MULTIPLE_OF_MINI",
            f"{keys.TRAIN_BATCH} {train} is not a multiple of {role.mini_key} {role.mini}",
            "the V1 trainer fills the last update with padding rows that still count in throughput"
            if v1
            else "the older trainer asserts on a remainder",
            nearest=_multiples_around(keys.TRAIN_BATCH, train, role.mini),
            keys=(keys.TRAIN_BATCH, role.mini_key),
            source="S1 section 5.1; verl trainer/ppo/v1/trainer_base.py",
            computed={"role": role.name, "remainder": train % role.mini},
        )


def _share_of_a_rank(role: Role, rollout_n: int) -> Iterator[PreflightFinding]:
    rows = role.mini * rollout_n
    share, rest = divmod(rows, role.ranks)
    computed = {"role": role.name, "rows": rows, "data_parallel": role.ranks, "mini_per_gpu": share}
    if role.mini < 1:
        return
    if share == 0:
        least = nearest_multiple(1, mini_batch_unit(data_parallel=role.ranks, rollout_n=rollout_n))
        yield error(
            "MINI_ZERO_AFTER_NORM",
            f"{role.mini_key} {role.mini} x rollout.n {rollout_n} = {rows} rows for {role.ranks} ranks: none each",
            f"every rank needs a row of each mini-batch; the smallest that spreads evenly is {least}",
            nearest=(f"{role.mini_key}={least}",),
            keys=(role.mini_key, keys.ROLLOUT_N, keys.GPUS_PER_NODE),
            source=f"PRIME-RL/TTRL#43; {ENGINE}",
            computed=computed | {"least_mini": least},
        )
    elif rest:
        unit = mini_batch_unit(data_parallel=role.ranks, rollout_n=rollout_n)
        yield error(
            "MINI_NOT_MULTIPLE_OF_RANKS",
            f"{role.mini_key} {role.mini} x rollout.n {rollout_n} = {rows} rows do not spread over {role.ranks} ranks",
            "verl asserts that each rank gets the same share, after the models are loaded",
            nearest=_multiples_around(role.mini_key, role.mini, unit),
            keys=(role.mini_key, keys.ROLLOUT_N, keys.GPUS_PER_NODE),
            source=ENGINE,
            computed=computed,
        )
    elif role.micro is not None:
        yield from _micro_against_share(role, rollout_n, share, computed)


def _micro_against_share(
    role: Role, rollout_n: int, share: int, computed: dict[str, object]
) -> Iterator[PreflightFinding]:
    micro = role.micro or 0
    if micro < 1 or share % micro == 0:  # a size below 1 is reported with the micro-batch keys
        return
    make, effect = (error, "the last cut is empty or short: verl asserts, older versions trained on NaN")
    if not role.micro_counts:
        make, effect = (warn, "the V1 trainer ignores this key and cuts by tokens; the older trainer would fail")
    mini_unit = mini_batch_unit(data_parallel=role.ranks, micro_batch_per_gpu=micro, rollout_n=rollout_n)
    fits = fitting_micro_batches(share)
    yield make(
        "MICRO_GT_NORMALISED_MINI" if micro > share else "MICRO_NOT_DIVIDING_MINI",
        f"{role.micro_key} {micro} does not fit the {share} rows that one rank has of a mini-batch",
        f"per-GPU mini-batch = {role.mini} x {rollout_n} / {role.ranks} = {share}, and {share} % {micro} is not 0; "
        + effect,
        nearest=(
            f"{role.micro_key}={max((size for size in fits if size <= micro), default=1)}",
            f"{role.mini_key}={nearest_multiple(role.mini, mini_unit)}",
        ),
        keys=(role.micro_key, role.mini_key, keys.ROLLOUT_N),
        source=NORMALISATION,
        computed=computed | {"micro": micro, "valid_micro": list(fits), "mini_unit": mini_unit},
    )


def _train_against_gpus(config: Config, train: int) -> Iterator[PreflightFinding]:
    place = layout(config)
    if place.gpus is None or train < 1:
        return
    rows = train * place.rollout_n
    if rows % place.gpus:
        dynamic = bool(flag(config, keys.ACTOR_DYNAMIC_BATCH))
        unit = place.gpus // math.gcd(place.gpus, place.rollout_n)
        make = warn if dynamic and uses_v1(config) else error
        yield make(
            "TRAIN_NOT_MULTIPLE_OF_GPUS",
            f"{keys.TRAIN_BATCH} {train} x rollout.n {place.rollout_n} = {rows} rows do not spread over "
            f"{place.gpus} GPUs",
            "verl pads the step" if make is warn else "verl refuses it at its start",
            nearest=_multiples_around(keys.TRAIN_BATCH, train, unit),
            keys=(keys.TRAIN_BATCH, keys.ROLLOUT_N, keys.GPUS_PER_NODE, keys.NODES),
            source="verl utils/config.py",
            computed={"rows": rows, "gpus": place.gpus},
        )


def _multiples_around(key: str, size: int, unit: int) -> tuple[str, ...]:
    """The multiples of `unit` on both sides of `size`, the nearer first."""
    below = size // unit * unit
    around = [multiple for multiple in (below, below + unit) if multiple > 0]
    return tuple(f"{key}={multiple}" for multiple in sorted(around, key=lambda multiple: abs(multiple - size)))
