"""Advice on several GPUs and on density, each with its reason and with verl's real limits.

Remarks, but for a wrapping that takes away what sharding saves.

The articles' rules of thumb are kept where they hold; where verl or a measurement says otherwise, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.health.preflight.batches import fitting_micro_batches, roles
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, info, warn
from sweep.health.preflight.memory import GIB, ROLLOUT_BYTES
from sweep.health.preflight.parallel import fitting_tensor_parallel, fitting_ulysses
from sweep.health.preflight.settings import (
    Config,
    flag,
    layout,
    needs_critic,
    needs_reference,
    number,
    sequence_tokens,
    text,
    uses_megatron,
    uses_v1,
    whole,
)
from sweep.health.preflight.tokens import CRITIC_TOKENS_DEFAULT


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Advice on parallel sizes, FSDP memory and density."""
    gpus = layout(config).gpus
    if gpus is None or uses_megatron(config):
        return
    if gpus > 1:
        yield from _ulysses(config, facts, gpus)
        yield from _tensor_parallel(config, facts, gpus)
    yield from _fsdp(config, facts)
    yield from _density(config, facts)


def _ulysses(config: Config, facts: Facts, gpus: int) -> Iterator[PreflightFinding]:
    most, long = facts.limits.ulysses_size, facts.limits.long_sequence_tokens
    size, longest = layout(config).sequence_parallel, sequence_tokens(config)
    fits = [fit for fit in fitting_ulysses(gpus, facts.model) if fit <= min(most, gpus)]
    best = max(fits, default=1)
    if size > most:
        yield info(
            "ADVISE_ULYSSES",
            f"a sequence-parallel size of {size} spends much of the step on communication",
            f"at most {most} is advised; S0 measured 37 % less communication with 4 than with 8 on 8 GPUs",
            nearest=(f"{keys.ULYSSES}={best}",),
            keys=(keys.ULYSSES,),
            source="S0 section 3.1",
        )
    elif size == 1 and longest is not None and longest > long and best > 1:
        yield info(
            "ADVISE_ULYSSES",
            f"sequences reach {longest} tokens on one rank",
            f"{best} is min({most}, GPUs) as far as the model's heads allow; it divides activations by that",
            nearest=(f"{keys.ULYSSES}={best}",),
            keys=(keys.ULYSSES,),
            source="S0 section 3.1; verl docs/perf/perf_tuning.rst",
        )
    elif size > 1 and longest is not None and longest <= long:
        yield info(
            "ADVISE_ULYSSES",
            f"sequences of at most {longest} tokens seldom need sequence parallelism",
            f"it is recommended above {long} tokens; below, min({most}, GPUs) costs more communication than it saves "
            "memory",
            nearest=(f"{keys.ULYSSES}=1",),
            keys=(keys.ULYSSES,),
            source="verl docs/perf/perf_tuning.rst; S0 section 3.1",
        )


def _tensor_parallel(config: Config, facts: Facts, gpus: int) -> Iterator[PreflightFinding]:
    size, share = whole(config, keys.TENSOR_PARALLEL), number(config, keys.MEMORY_UTILIZATION)
    if size is None or size < 1 or facts.model.parameters is None or facts.gpu_gib is None or not share:
        return
    weights = facts.model.parameters * ROLLOUT_BYTES / GIB
    fits = fitting_tensor_parallel(gpus, facts.model.attention_heads)
    least = next((fit for fit in fits if weights < facts.gpu_gib * share * fit / 2), None)
    if least is not None and least < size:
        yield info(
            "ADVISE_TP",
            f"{weights:.1f} GiB of weights would fit at TP {least}, {keys.TENSOR_PARALLEL} is {size}",
            "more replicas with a smaller TP usually generate faster; S1 saw the opposite with a 0.5B model on 2 GPUs "
            "(3.21 to 2.45 s at TP 2), so measure both",
            nearest=(f"{keys.TENSOR_PARALLEL}={least}",),
            keys=(keys.TENSOR_PARALLEL,),
            source="verl docs/perf/perf_tuning.rst; S1 section 5.3",
        )


def _fsdp(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    yield from _wrapping(config, facts)
    parameters = facts.model.parameters or 0.0
    if parameters < facts.limits.large_model_parameters:
        return
    if flag(config, keys.ACTOR_RESHARD) is False:
        yield info(
            "ADVISE_FULL_SHARD",
            f"{keys.ACTOR_RESHARD} is false",
            "parameters then stay whole between forward and backward; true is FULL_SHARD",
            nearest=(f"{keys.ACTOR_RESHARD}=true",),
            keys=(keys.ACTOR_RESHARD,),
            source="S0 section 3.2; verl workers/engine/fsdp/utils.py",
        )
    if flag(config, keys.ACTOR_PARAM_OFFLOAD):
        yield info(
            "ADVISE_OFFLOAD",
            f"{keys.ACTOR_PARAM_OFFLOAD} is true",
            "it saves memory and costs time: optimizer offload took a step from 0.75 to 1.68 s for 4.7 GiB elsewhere, "
            "although S0 reports 11 % faster; keep it as the last remedy",
            keys=(keys.ACTOR_PARAM_OFFLOAD,),
            source="NVIDIA-NeMo/RL PR #3628; pytorch/pytorch#74588; S0 section 3.2",
        )
    yield info(
        "ADVISE_FSDP",
        f"{parameters / 1e9:.1f}B parameters: of the settings that took a 13B model from 82 to 58 GB in S0, full "
        "sharding and bfloat16 with float32 reduction are verl's defaults",
        "its minimum of 1e9 parameters a unit is better left at 0, which wraps layer by layer; its offloading is the "
        "last remedy, optimizer first; the reference model is offloaded in any case",
        keys=(keys.ACTOR_RESHARD, keys.ACTOR_MIXED_PRECISION, keys.ACTOR_WRAP_PARAMS, keys.ACTOR_PARAM_OFFLOAD),
        source="S0 section 3.2; verl workers/engine/fsdp/transformer_impl.py, utils/fsdp_utils.py",
    )


def _wrapping(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """A minimum size of FSDP units replaces verl's wrapping by layer, and FSDP 2 does not read it."""
    least = whole(config, keys.ACTOR_WRAP_PARAMS) or 0
    if least <= 0:
        return
    zero = (f"{keys.ACTOR_WRAP_PARAMS}=0",)
    if text(config, keys.ACTOR_STRATEGY) == "fsdp2":
        yield info(
            "WRAP_UNREAD",
            f"{keys.ACTOR_WRAP_PARAMS} is {least}, and fsdp2 never reads it",
            "it wraps by layer class",
            nearest=zero,
            keys=(keys.ACTOR_WRAP_PARAMS, keys.ACTOR_STRATEGY),
            source="verl utils/fsdp_utils.py apply_fsdp2",
        )
        return
    parameters, layers = facts.model.parameters, facts.model.layers
    if parameters and layers and least > parameters / layers:
        yield warn(
            "WRAP_ABOVE_LAYER",
            f"{keys.ACTOR_WRAP_PARAMS} is {least}, a layer has about {parameters / layers:.2g} parameters",
            "verl then wraps by size instead of by layer: units of several layers, or of the whole model, are gathered "
            "at once; S0's 1e9 does not suit a model of this size",
            nearest=zero,
            keys=(keys.ACTOR_WRAP_PARAMS,),
            source="S0 section 3.2; verl utils/fsdp_utils.py get_fsdp_wrap_policy",
            computed={"least": least, "layer": round(parameters / layers)},
        )


def _density(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    actor = next((role for role in roles(config) if role.name == "actor"), None)
    if actor is not None and actor.micro:
        share = actor.mini * layout(config).rollout_n // actor.ranks
        larger = [size for size in fitting_micro_batches(share) if size > actor.micro]
        if larger:
            yield info(
                "ADVISE_MICRO",
                f"{keys.ACTOR_MICRO_BATCH} is {actor.micro}, one rank has {share} rows of a mini-batch",
                "larger micro-batches change speed and memory, not the result; dynamic batches save the tuning",
                nearest=(f"{keys.ACTOR_MICRO_BATCH}={larger[0]}", f"{keys.ACTOR_DYNAMIC_BATCH}=true"),
                keys=(keys.ACTOR_MICRO_BATCH, keys.ACTOR_DYNAMIC_BATCH),
                source="S1 section 3.1; verl docs/perf/perf_tuning.rst",
            )
    yield from _critic_density(config, facts.limits.critic_tokens_ratio)
    log_probs = [keys.LOG_PROB_MICRO_BATCH] + ([keys.REF_MICRO_BATCH] if needs_reference(config) else [])
    most = facts.limits.log_prob_micro_batch
    for key in log_probs:
        micro = whole(config, key)
        if micro is not None and micro > most and not flag(config, keys.ACTOR_DYNAMIC_BATCH):
            yield info(
                "ADVISE_LOG_PROB_MICRO",
                f"{key} is {micro}",
                f"above {most} padding costs more than it saves, as S1 saw above 20",
                nearest=(f"{key}={2 ** (most.bit_length() - 1)}",),
                keys=(key,),
                source="S1 section 2.3",
            )
    if keys.DATA_SEED in config and config[keys.DATA_SEED] is None:
        yield info(
            "DATA_SEED_NULL",
            f"{keys.DATA_SEED} is null",
            "every run then sees the same order: repeated runs are no replicates",
            nearest=(f"{keys.DATA_SEED}=1",),
            keys=(keys.DATA_SEED,),
            source="METHOD section 9",
        )


def _critic_density(config: Config, ratio: float) -> Iterator[PreflightFinding]:
    """The V1 trainer batches the critic by tokens, whatever its micro-batch keys say."""
    if not needs_critic(config) or not uses_v1(config):
        return
    micro, longest = whole(config, keys.ACTOR_MICRO_BATCH), sequence_tokens(config)
    fixed = micro * longest if micro and longest else None
    actor = whole(config, keys.ACTOR_TOKENS) if flag(config, keys.ACTOR_DYNAMIC_BATCH) else fixed
    cap = whole(config, keys.CRITIC_INFER_MAX_TOKENS) or CRITIC_TOKENS_DEFAULT
    if actor is not None and cap < ratio * actor:
        yield info(
            "ADVISE_CRITIC_TOKENS",
            f"the critic's micro-batches hold {cap} tokens, the actor's up to {actor}",
            f"a critic has no logits and takes {ratio:g} times as many in the same memory; S1's critic "
            "micro-batch of 8 is not read by this trainer",
            nearest=(f"+{keys.CRITIC_INFER_MAX_TOKENS}={math.ceil(ratio * actor)}",),
            keys=(keys.CRITIC_INFER_MAX_TOKENS, keys.ACTOR_TOKENS, keys.ACTOR_MICRO_BATCH),
            source="S1 section 4.1; verl docs/perf/perf_tuning.rst; verl v1/trainer_base.py",
            computed={"critic": cap, "actor": actor},
        )
