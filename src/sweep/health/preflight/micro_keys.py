"""Whether the micro-batch keys are set in a way that verl accepts: one of each pair, and log-prob sizes that divide.

The same two rules for actor, critic, reference log-prob and rollout log-prob.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.lattice import nearest_multiple
from sweep.health.preflight.batches import fitting_micro_batches, roles
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error
from sweep.health.preflight.settings import (
    Config,
    flag,
    layout,
    needs_critic,
    needs_reference,
    uses_megatron,
    whole,
)

SOURCE = "verl utils/config.py, workers/config/actor.py, workers/config/critic.py; verl-project/verl#145, #217"


@dataclass(frozen=True, slots=True)
class Pair:
    """The per-GPU key of a micro-batch, its deprecated global twin, and the switch that makes both idle."""

    per_gpu: str
    deprecated: str
    dynamic: str


ACTOR = Pair(keys.ACTOR_MICRO_BATCH, keys.ACTOR_MICRO_GLOBAL, keys.ACTOR_DYNAMIC_BATCH)
CRITIC = Pair(keys.CRITIC_MICRO_BATCH, keys.CRITIC_MICRO_GLOBAL, keys.CRITIC_DYNAMIC)
ROLLOUT = Pair(keys.LOG_PROB_MICRO_BATCH, keys.ROLLOUT_LOG_PROB_MICRO_GLOBAL, keys.ACTOR_DYNAMIC_BATCH)
REFERENCE = Pair(keys.REF_MICRO_BATCH, keys.REF_LOG_PROB_MICRO_GLOBAL, keys.ACTOR_DYNAMIC_BATCH)


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on micro-batch keys."""
    pairs = [ACTOR, ROLLOUT]
    pairs += [CRITIC] if needs_critic(config) else []
    pairs += [REFERENCE] if needs_reference(config) else []
    for pair in pairs:
        yield from _exactly_one(config, pair)
    yield from _dynamic_agrees(config)
    if not uses_megatron(config) and not flag(config, keys.ACTOR_DYNAMIC_BATCH):
        yield from _log_prob_divides(config, ROLLOUT)
        if needs_reference(config):
            yield from _log_prob_divides(config, REFERENCE)


def _exactly_one(config: Config, pair: Pair) -> Iterator[PreflightFinding]:
    if flag(config, pair.dynamic) or pair.per_gpu not in config:
        return
    given, old = config.get(pair.per_gpu), config.get(pair.deprecated)
    if given is None and old is None:
        yield error(
            "MICRO_KEYS",
            f"neither {pair.per_gpu} nor {pair.deprecated} is set",
            f"without {pair.dynamic}=true verl needs a micro-batch size and has no default",
            nearest=(f"{pair.per_gpu}=1", f"{pair.dynamic}=true"),
            keys=(pair.per_gpu, pair.dynamic),
            source=SOURCE,
        )
    elif given is not None and old is not None:
        yield error(
            "MICRO_KEYS",
            f"both {pair.per_gpu}={given} and {pair.deprecated}={old} are set",
            f"verl takes one of them; {pair.deprecated} is deprecated",
            nearest=(f"{pair.deprecated}=null",),
            keys=(pair.per_gpu, pair.deprecated),
            source=SOURCE,
        )
    elif given is not None and (whole(config, pair.per_gpu) or 0) < 1:
        yield error(
            "MICRO_KEYS",
            f"{pair.per_gpu} is {given!r}",
            "a micro-batch size is a whole number of rows, at least 1",
            nearest=(f"{pair.per_gpu}=1",),
            keys=(pair.per_gpu,),
            source=SOURCE,
        )


def _dynamic_agrees(config: Config) -> Iterator[PreflightFinding]:
    training, log_prob = flag(config, keys.ACTOR_DYNAMIC_BATCH), flag(config, keys.ROLLOUT_LOG_PROB_DYNAMIC)
    if training is not None and log_prob is not None and training != log_prob:
        yield error(
            "DYNAMIC_BSZ_MISMATCH",
            f"{keys.ACTOR_DYNAMIC_BATCH} is {training}, {keys.ROLLOUT_LOG_PROB_DYNAMIC} is {log_prob}",
            "verl asserts that they are equal, after the models are loaded",
            nearest=(f"{keys.ROLLOUT_LOG_PROB_DYNAMIC}={str(training).lower()}",),
            keys=(keys.ACTOR_DYNAMIC_BATCH, keys.ROLLOUT_LOG_PROB_DYNAMIC),
            source="verl workers/engine_workers.py",
        )


def _log_prob_divides(config: Config, pair: Pair) -> Iterator[PreflightFinding]:
    place, train, micro = layout(config), whole(config, keys.TRAIN_BATCH), whole(config, pair.per_gpu)
    if not place.data_parallel or not train or not micro or train < 1 or micro < 1:
        return
    multiple = math.lcm(place.data_parallel, *(max(1, role.mini) * place.rollout_n for role in roles(config)))
    rows = math.ceil(train * place.rollout_n / multiple) * multiple
    share = rows // place.data_parallel
    if share % micro == 0:
        return
    fitting = max(size for size in fitting_micro_batches(share) if size <= micro)
    unit = micro * place.data_parallel // math.gcd(micro * place.data_parallel, place.rollout_n)
    yield error(
        "LOG_PROB_MICRO_NOT_DIVIDING",
        f"{pair.per_gpu} {micro} does not divide the {share} rows that each rank has of a step",
        f"{train} prompts x {place.rollout_n}, padded to {rows} rows, on {place.data_parallel} ranks; verl asserts "
        "at the first log-prob",
        nearest=(f"{pair.per_gpu}={fitting}", f"{keys.TRAIN_BATCH}={nearest_multiple(train, unit)}"),
        keys=(pair.per_gpu, keys.TRAIN_BATCH),
        source="verl workers/engine/utils.py",
        computed={"rows": rows, "rows_per_gpu": share, "micro": micro},
    )
