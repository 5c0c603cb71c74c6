"""Whether GPUs, tensor parallelism, Ulysses sequence parallelism and attention heads fit each other.

verl checks none of this before Ray and the models are up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.lattice import valid_mini_batches
from sweep.health.preflight.facts import Facts, ModelFacts
from sweep.health.preflight.finding import PreflightFinding, error
from sweep.health.preflight.settings import Config, flag, layout, needs_critic, uses_megatron, whole

ULYSSES_SOURCE = "verl models/transformers/monkey_patch.py, workers/engine/fsdp/transformer_impl.py"
ROLLOUT_SOURCE = "verl workers/engine_workers.py; verl-project/verl#1191, #1785, #4569"
VLLM_SOURCE = "vLLM config: attention heads over tensor-parallel ranks"


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on parallel sizes."""
    yield from _gpus(config, facts)
    yield from _rollout_size(config, facts.model)
    if uses_megatron(config):
        yield from _megatron(config)
    else:
        yield from _ulysses_of_actor(config, facts.model)
        yield from _ulysses_of_critic(config, facts)


def fitting_tensor_parallel(gpus: int, heads: int | None) -> tuple[int, ...]:
    """Tensor-parallel sizes that divide the GPUs and, where known, the attention heads; rising."""
    return tuple(size for size in valid_mini_batches(gpus) if heads is None or heads % size == 0)


def fitting_ulysses(gpus: int, model: ModelFacts) -> tuple[int, ...]:
    """Sequence-parallel sizes that verl accepts on so many GPUs, rising.

    They divide the GPUs and the attention heads, and divide or are divided by the key-value heads.
    """
    return tuple(size for size in valid_mini_batches(gpus) if _heads_allow(size, model))


def _heads_allow(size: int, model: ModelFacts) -> bool:
    heads_fit = model.attention_heads is None or model.attention_heads % size == 0
    pairs_fit = model.kv_heads is None or model.kv_heads % size == 0 or size % model.kv_heads == 0
    return heads_fit and pairs_fit


def _gpus(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    asked, nodes = whole(config, keys.GPUS_PER_NODE), whole(config, keys.NODES)
    for key, size in ((keys.GPUS_PER_NODE, asked), (keys.NODES, nodes)):
        if size is not None and size < 1:
            yield error("BATCH_NOT_POSITIVE", f"{key} is {size}", "a trial needs at least one GPU", keys=(key,))
    if asked is not None and facts.gpu_count is not None and nodes == 1 and asked > facts.gpu_count:
        yield error(
            "GPUS_MISSING",
            f"{keys.GPUS_PER_NODE} is {asked}, and this machine has {facts.gpu_count}",
            "verl does not queue for GPUs: it fails as soon as Ray has fewer than asked for",
            nearest=(f"{keys.GPUS_PER_NODE}={facts.gpu_count}",) if facts.gpu_count else (),
            keys=(keys.GPUS_PER_NODE,),
            source="verl single_controller/ray/base.py",
            computed={"asked": asked, "present": facts.gpu_count},
        )


def _rollout_size(config: Config, model: ModelFacts) -> Iterator[PreflightFinding]:
    tensor_parallel = whole(config, keys.TENSOR_PARALLEL)
    gpus = layout(config).gpus
    if tensor_parallel is None or gpus is None:
        return
    replica = tensor_parallel * (whole(config, keys.ROLLOUT_DP) or 1) * (whole(config, keys.ROLLOUT_PP) or 1)
    fits = fitting_tensor_parallel(gpus, model.attention_heads)
    nearest = tuple(
        f"{keys.TENSOR_PARALLEL}={size}"
        for size in sorted(fits, key=lambda size: (abs(size - tensor_parallel), size))[:3]
    )
    if replica < 1 or gpus % replica:
        yield error(
            "TP_NOT_DIVIDING_WORLD",
            f"a rollout replica takes {replica} GPUs ({keys.TENSOR_PARALLEL}={tensor_parallel}), the trial has {gpus}",
            "replicas must use up the GPUs; verl's default of 2 does not suit a single GPU",
            nearest=nearest,
            keys=(keys.TENSOR_PARALLEL, keys.ROLLOUT_DP, keys.GPUS_PER_NODE, keys.NODES),
            source=ROLLOUT_SOURCE,
            computed={"world": gpus, "tp": tensor_parallel, "replica": replica},
        )
    yield from _rollout_heads(tensor_parallel, model, nearest)


def _rollout_heads(tensor_parallel: int, model: ModelFacts, nearest: tuple[str, ...]) -> Iterator[PreflightFinding]:
    heads, pairs = model.attention_heads, model.kv_heads
    if heads is not None and tensor_parallel >= 1 and heads % tensor_parallel:
        yield error(
            "TP_NOT_DIVIDING_HEADS",
            f"{keys.TENSOR_PARALLEL} {tensor_parallel} does not divide the model's {heads} attention heads",
            "the inference engine gives each rank whole heads",
            nearest=nearest,
            keys=(keys.TENSOR_PARALLEL,),
            source=VLLM_SOURCE,
            computed={"heads": heads, "tp": tensor_parallel},
        )
    elif pairs and tensor_parallel >= 1 and pairs % tensor_parallel and tensor_parallel % pairs:
        yield error(
            "TP_NOT_DIVIDING_HEADS",
            f"{keys.TENSOR_PARALLEL} {tensor_parallel} neither divides nor is a multiple of {pairs} key-value heads",
            "key-value heads are split or repeated whole",
            nearest=nearest,
            keys=(keys.TENSOR_PARALLEL,),
            source=VLLM_SOURCE,
            computed={"kv_heads": pairs, "tp": tensor_parallel},
        )


def _megatron(config: Config) -> Iterator[PreflightFinding]:
    sizes = [whole(config, key) or 1 for key in (keys.MEGATRON_TP, keys.MEGATRON_PP, keys.MEGATRON_CP)]
    gpus, model = layout(config).gpus, max(1, math.prod(sizes))
    if gpus is not None and gpus % model:
        yield error(
            "MEGATRON_NOT_DIVIDING_WORLD",
            f"one copy of the model takes {model} GPUs (tensor x pipeline x context), the trial has {gpus}",
            "copies must use up the GPUs; verl refuses it at its start",
            keys=(keys.MEGATRON_TP, keys.MEGATRON_PP, keys.MEGATRON_CP, keys.GPUS_PER_NODE, keys.NODES),
            source="verl utils/config.py",
            computed={"world": gpus, "model": model},
        )


def _ulysses_of_actor(config: Config, model: ModelFacts) -> Iterator[PreflightFinding]:
    place = layout(config)
    old = (whole(config, keys.ACTOR_ULYSSES_OLD) or 1) > 1
    key = keys.ACTOR_ULYSSES_OLD if old else keys.ULYSSES
    yield from _ulysses(key, place.sequence_parallel, place.gpus, model)
    if place.sequence_parallel > 1 and flag(config, keys.MODEL_REMOVE_PADDING) is False:
        yield _needs_packing(key, keys.MODEL_REMOVE_PADDING)


def _ulysses_of_critic(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    place = layout(config)
    if not needs_critic(config) or place.critic_sequence_parallel == 1:
        return
    same = config.get(keys.CRITIC_MODEL_PATH) == config.get(keys.MODEL_PATH)
    model = facts.model if same and facts.critic_model == ModelFacts() else facts.critic_model
    yield from _ulysses(keys.CRITIC_ULYSSES, place.critic_sequence_parallel, place.gpus, model)
    if flag(config, keys.CRITIC_REMOVE_PADDING) is False:
        yield _needs_packing(keys.CRITIC_ULYSSES, keys.CRITIC_REMOVE_PADDING)


def _ulysses(key: str, size: int, gpus: int | None, model: ModelFacts) -> Iterator[PreflightFinding]:
    if size == 1 or gpus is None:
        return
    fits = fitting_ulysses(gpus, model)
    nearest = tuple(f"{key}={fit}" for fit in sorted(fits, key=lambda fit: (abs(fit - size), fit))[:3])
    computed = {"size": size, "gpus": gpus, "fitting": list(fits)}
    if gpus % size:
        yield error(
            "SP_NOT_DIVIDING_WORLD",
            f"{key} {size} does not divide the trial's {gpus} GPUs",
            "sequence-parallel groups must use up the GPUs",
            nearest=nearest,
            keys=(key, keys.GPUS_PER_NODE, keys.NODES),
            source=ULYSSES_SOURCE,
            computed=computed,
        )
    if not _heads_allow(size, model):
        yield error(
            "SP_NOT_DIVIDING_HEADS",
            f"{key} {size} does not fit {model.attention_heads} attention and {model.kv_heads} key-value heads",
            "Ulysses gives each rank whole heads: it must divide the attention heads, and divide or be a multiple "
            "of the key-value heads; S0's min(4, GPUs) does not know the model",
            nearest=nearest,
            keys=(key,),
            source=ULYSSES_SOURCE,
            computed=computed | {"heads": model.attention_heads, "kv_heads": model.kv_heads},
        )


def _needs_packing(key: str, packing: str) -> PreflightFinding:
    return error(
        "SP_NEEDS_REMOVE_PADDING",
        f"{key} is above 1 and {packing} is false",
        "sequence parallelism works on packed sequences only; verl fails when it builds the engine",
        nearest=(f"{packing}=true", f"{key}=1"),
        keys=(key, packing),
        source=ULYSSES_SOURCE,
    )
