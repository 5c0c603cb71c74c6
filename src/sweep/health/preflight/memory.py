"""Whether the model fits: its weights in the rollout's share of the GPU, and the training state beside them.

Estimates from parameter counts, with the per-parameter bytes below; activations are estimated roughly and without
fragmentation. So only what cannot hold by weights alone is an error, and the rest a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.token_budget import kv_bytes_per_token
from sweep.health.preflight.facts import Facts, ModelFacts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
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
    whole,
)

GIB = 1024**3

ROLLOUT_BYTES = 2.0
"""Bytes a parameter takes in the inference engine: bfloat16. Source: verl trainer/config/rollout/rollout.yaml."""

WEIGHT_BYTES = 4.0
"""Bytes of a trained parameter: float32 master weights. Source: verl fsdp_config.model_dtype."""

GRADIENT_BYTES = 4.0
"""Bytes of its gradient, reduced in float32. Source: verl workers/engine/fsdp/transformer_impl.py."""

OPTIMIZER_BYTES = 8.0
"""Bytes of AdamW's two moments in float32."""

LOGIT_BYTES = 10.0
"""Bytes a vocabulary entry takes for each token: bfloat16 logits, their float32 copy and its gradient. Ours."""


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on GPU memory; silent without parameter count or GPU size."""
    if facts.gpu_gib is None:
        return
    if facts.model.parameters is not None:
        yield from _rollout_share(config, facts.model.parameters, facts.gpu_gib, facts.limits.kv_cache_share)
        yield from _cache(config, facts.model, facts.gpu_gib)
        if not uses_megatron(config):
            yield from _training_state(config, facts, facts.gpu_gib)
    yield from _logits(config, facts.model, facts.gpu_gib, facts.limits.full_share * facts.gpu_gib)


def cache_tokens(config: Config, model: ModelFacts, gpu_gib: float) -> int | None:
    """Tokens that the KV cache of one rollout replica can hold, before activations; None if the shape is unknown.

    The tensor-parallel ranks share each token.
    """
    share, ranks = number(config, keys.MEMORY_UTILIZATION), whole(config, keys.TENSOR_PARALLEL)
    if not (model.parameters and model.layers and model.kv_heads and model.head_size and share and ranks):
        return None
    token_bytes = kv_bytes_per_token(model.layers, model.kv_heads, model.head_size)
    room = gpu_gib * share * ranks * GIB - model.parameters * ROLLOUT_BYTES
    return max(0, int(room / token_bytes))


def training_state_gib(config: Config, facts: Facts) -> dict[str, float]:
    """GiB of each model's training state on one GPU, by role; what is offloaded does not count."""
    gpus = layout(config).gpus
    parameters = facts.model.parameters
    if gpus is None or parameters is None:
        return {}
    state = {
        "actor": parameters * _bytes(config, keys.ACTOR_PARAM_OFFLOAD, keys.ACTOR_OPTIMIZER_OFFLOAD) / (gpus * GIB)
    }
    if needs_critic(config):
        critic = facts.critic_model.parameters or parameters
        state["critic"] = (
            critic * _bytes(config, keys.CRITIC_PARAM_OFFLOAD, keys.CRITIC_OPTIMIZER_OFFLOAD) / (gpus * GIB)
        )
    offloads_it = text(config, keys.ACTOR_STRATEGY) in ("fsdp", "fsdp2")  # verl does, whatever its key says
    if needs_reference(config) and not offloads_it and not flag(config, keys.REF_PARAM_OFFLOAD):
        state["reference"] = parameters * WEIGHT_BYTES / (gpus * GIB)
    return state


def _bytes(config: Config, weights_away: str, optimizer_away: str) -> float:
    weights = 0.0 if flag(config, weights_away) else WEIGHT_BYTES
    optimizer = 0.0 if flag(config, optimizer_away) else OPTIMIZER_BYTES
    return weights + optimizer + GRADIENT_BYTES


def _rollout_share(config: Config, parameters: float, gpu_gib: float, cache_share: float) -> Iterator[PreflightFinding]:
    share, ranks = number(config, keys.MEMORY_UTILIZATION), whole(config, keys.TENSOR_PARALLEL)
    if share is None or not ranks or not 0.0 < share <= 1.0:
        return
    weights, room = parameters * ROLLOUT_BYTES / GIB, gpu_gib * share * ranks
    computed = {"weights_gib": round(weights, 2), "share_gib": round(room, 2), "tp": ranks, "utilization": share}
    enough = -(-weights / (1.0 - cache_share) // (gpu_gib * share))
    nearest = (f"{keys.TENSOR_PARALLEL}={_power_of_two(int(enough))}",)
    if weights >= room:
        yield error(
            "WEIGHTS_EXCEED_SHARE",
            f"{weights:.1f} GiB of weights do not fit the rollout's {room:.1f} GiB "
            f"({gpu_gib:g} GiB x {share:g} x TP {ranks})",
            "the inference engine needs its weights and a KV cache inside its share of the GPUs",
            nearest=nearest,
            keys=(keys.TENSOR_PARALLEL, keys.MEMORY_UTILIZATION),
            source="verl docs/perf/best_practices.rst; vllm-project/vllm#2248",
            computed=computed,
        )
    elif room - weights < cache_share * room:
        yield warn(
            "KV_SHARE_SMALL",
            f"{room - weights:.1f} of the rollout's {room:.1f} GiB are left for the KV cache",
            f"under {cache_share:.0%} few sequences run at once and generation is slow",
            nearest=nearest,
            keys=(keys.TENSOR_PARALLEL, keys.MEMORY_UTILIZATION),
            source="verl docs/perf/best_practices.rst",
            computed=computed,
        )


def _cache(config: Config, model: ModelFacts, gpu_gib: float) -> Iterator[PreflightFinding]:
    tokens, longest = cache_tokens(config, model, gpu_gib), sequence_tokens(config)
    if not tokens or not longest:  # no room at all is told by the weights
        return
    computed = {"have": tokens, "need": longest, "sequences": tokens // longest}
    if tokens < longest:
        yield error(
            "KV_CACHE_LT_SEQ",
            f"the KV cache holds about {tokens} tokens, one sequence has up to {longest}",
            "the engine refuses to start",
            nearest=(f"{keys.TENSOR_PARALLEL}={2 * (whole(config, keys.TENSOR_PARALLEL) or 1)}",),
            keys=(keys.MEMORY_UTILIZATION, keys.TENSOR_PARALLEL, keys.RESPONSE_LENGTH),
            source="vllm-project/vllm#2418, #10517",
            computed=computed,
        )
    elif tokens // longest < (whole(config, keys.MAX_SEQS) or 0):
        yield info(
            "KV_CACHE_LT_SEQS",
            f"the KV cache holds about {tokens // longest} sequences of full length at once, "
            f"{keys.MAX_SEQS} is {config[keys.MAX_SEQS]}",
            "if responses grow that long, the engine preempts some of them and computes them again",
            keys=(keys.MAX_SEQS, keys.MEMORY_UTILIZATION),
            source="vLLM documentation on preemption",
            computed=computed,
        )
    budget = whole(config, keys.MAX_BATCHED_TOKENS) or 0
    if budget > tokens >= longest:
        yield warn(
            "BUDGET_EXCEEDS_CACHE",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is more than the about {tokens} tokens that the KV cache holds",
            "what is scheduled must be cached: such a budget is never filled, and its profile run shrinks the cache",
            nearest=(f"{keys.MAX_BATCHED_TOKENS}={tokens}",),
            keys=(keys.MAX_BATCHED_TOKENS, keys.MEMORY_UTILIZATION),
            source="METHOD section 4; vllm-project/vllm PR #48322",
            computed={"budget": budget, "have": tokens},
        )


def _training_state(config: Config, facts: Facts, gpu_gib: float) -> Iterator[PreflightFinding]:
    state = training_state_gib(config, facts)
    if not state:
        return
    total = sum(state.values())
    held = 0.0
    if flag(config, keys.ROLLOUT_FREE_CACHE) is False:
        held = gpu_gib * (number(config, keys.MEMORY_UTILIZATION) or 0.0)
    parts = ", ".join(f"{role} {gib:.1f}" for role, gib in state.items())
    computed = {f"{role}_gib": round(gib, 2) for role, gib in state.items()} | {"held_by_rollout_gib": round(held, 2)}
    make = warn if total + held > facts.limits.full_share * gpu_gib else info
    yield make(
        "TRAINING_STATE_EXCEEDS_GPU" if make is warn else "MEMORY_ESTIMATE",
        f"weights, gradients and optimizer take about {total:.1f} GiB on each {gpu_gib:g} GiB GPU ({parts})"
        + (f"; the rollout keeps {held:.1f} GiB while training" if held else ""),
        "an estimate without activations"
        if make is info
        else "no room is left for activations; offloading costs step time and is the last remedy, more GPUs the first",
        nearest=() if make is info else _lighter(config),
        keys=(keys.GPUS_PER_NODE, keys.ACTOR_OPTIMIZER_OFFLOAD, keys.ROLLOUT_FREE_CACHE),
        source="S0 section 3.2; NVIDIA-NeMo/RL PR #3628 (optimizer offload more than doubles step time)",
        computed=computed,
    )


def _lighter(config: Config) -> tuple[str, ...]:
    moves = [] if flag(config, keys.ROLLOUT_FREE_CACHE) else [f"{keys.ROLLOUT_FREE_CACHE}=true"]
    moves += [
        f"{key}=true"
        for key in (keys.ACTOR_OPTIMIZER_OFFLOAD, keys.CRITIC_OPTIMIZER_OFFLOAD, keys.ACTOR_PARAM_OFFLOAD)
        if not flag(config, key)
    ]
    return tuple(moves)


def _logits(config: Config, model: ModelFacts, gpu_gib: float, most_gib: float) -> Iterator[PreflightFinding]:
    micro, longest = whole(config, keys.ACTOR_MICRO_BATCH), sequence_tokens(config)
    if flag(config, keys.ACTOR_DYNAMIC_BATCH):
        tokens = whole(config, keys.ACTOR_TOKENS)
    else:
        tokens = micro * longest if micro and longest else None
    if not tokens or not model.vocabulary:
        return
    logits = tokens * model.vocabulary * LOGIT_BYTES / GIB
    if logits > most_gib:
        fitting = max(1, int((micro or 1) * most_gib / logits))
        yield warn(
            "LOGITS_EXCEED_GPU",
            f"logits of one micro-batch ({tokens} tokens x {model.vocabulary} entries) take about {logits:.1f} GiB",
            f"a GPU has {gpu_gib:g} GiB; an upper estimate, for sequences at their full length",
            nearest=(f"{keys.ACTOR_MICRO_BATCH}={fitting}", f"{keys.ACTOR_CHUNKED_ENTROPY}=true"),
            keys=(keys.ACTOR_MICRO_BATCH, keys.ACTOR_TOKENS),
            source="verl-project/verl#2828",
            computed={"logits_gib": round(logits, 2), "tokens": tokens},
        )


def _power_of_two(least: int) -> int:
    size = 1
    while size < least:
        size *= 2
    return size
