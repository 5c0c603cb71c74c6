"""Whether token budgets, sequence lengths and the rollout engine's limits fit each other.

Not the best budget: that is searched. A budget is refused if the engine refuses it, and remarked on if it cannot be
used up or lies above the article's clamp.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.token_budget import candidates, token_clamp
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.settings import (
    Config,
    flag,
    layout,
    needs_critic,
    needs_reference,
    number,
    sequence_tokens,
    uses_v1,
    whole,
)

CRITIC_TOKENS_DEFAULT = 32768
"""Tokens a critic micro-batch holds in the V1 trainer, unless set. Source: verl workers/config/critic.py."""

SCHEDULER_SOURCE = "vLLM vllm/config/scheduler.py"
SERVER_SOURCE = "verl workers/rollout/vllm_rollout/vllm_async_server.py"


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on tokens and lengths."""
    yield from _budget(config)
    yield from _sequence_against_model(config, facts)
    yield from _budget_without_chunks(config, facts)
    yield from _generated_against_kept(config)
    yield from _utilization(config, facts.limits.gpu_memory_utilization)
    yield from _clamp(config, facts)
    for key, cap, ranks in token_caps(config):
        yield from _cap(config, key, cap, ranks)


def token_caps(config: Config) -> Iterator[tuple[str, int, int]]:
    """Key, tokens and sequence-parallel ranks of every cap that a whole sequence must fit under."""
    place = layout(config)
    caps = [
        (keys.ACTOR_TOKENS, flag(config, keys.ACTOR_DYNAMIC_BATCH), place.sequence_parallel),
        (keys.ROLLOUT_LOG_PROB_MAX_TOKENS, flag(config, keys.ROLLOUT_LOG_PROB_DYNAMIC), place.sequence_parallel),
    ]
    if needs_reference(config):
        dynamic = flag(config, keys.REF_LOG_PROB_DYNAMIC)
        caps.append((keys.REF_LOG_PROB_MAX_TOKENS, dynamic, place.sequence_parallel))
    for key, dynamic, ranks in caps:
        cap = whole(config, key)
        if dynamic and cap is not None:
            yield key, cap, ranks
    if needs_critic(config) and uses_v1(config):
        cap = whole(config, keys.CRITIC_INFER_MAX_TOKENS) or CRITIC_TOKENS_DEFAULT
        yield keys.CRITIC_INFER_MAX_TOKENS, cap, place.critic_sequence_parallel


def _cap(config: Config, key: str, cap: int, ranks: int) -> Iterator[PreflightFinding]:
    longest = sequence_tokens(config)
    if longest is None or cap * ranks >= longest:
        return
    plus = "+" if key == keys.CRITIC_INFER_MAX_TOKENS and key not in config else ""
    yield error(
        "TOKEN_CAP_LT_SEQ",
        f"{key} {cap} x {ranks} sequence-parallel ranks hold {cap * ranks} tokens, one sequence has up to {longest}",
        "dynamic batches never cut a sequence, so the longest one must fit into a micro-batch",
        nearest=(f"{plus}{key}={-(-longest // ranks)}",),
        keys=(key, keys.PROMPT_LENGTH, keys.RESPONSE_LENGTH),
        source="verl-project/verl#571; verl docs/perf/best_practices.rst",
        computed={"cap": cap, "ranks": ranks, "sequence": longest},
    )


def _budget(config: Config) -> Iterator[PreflightFinding]:
    budget, seqs = whole(config, keys.MAX_BATCHED_TOKENS), whole(config, keys.MAX_SEQS)
    if budget is None or seqs is None:
        return
    if budget < 1 or seqs < 1:
        key = keys.MAX_BATCHED_TOKENS if budget < 1 else keys.MAX_SEQS
        yield error("OUT_OF_RANGE", f"{key} is {config[key]}", "the engine needs at least 1", keys=(key,))
    elif budget < seqs:
        yield error(
            "TOKENS_LT_SEQS",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is less than {keys.MAX_SEQS} {seqs}",
            "each running sequence takes one token of the budget in a decode step; the engine refuses less",
            nearest=(f"{keys.MAX_BATCHED_TOKENS}={seqs}", f"{keys.MAX_SEQS}={budget}"),
            keys=(keys.MAX_BATCHED_TOKENS, keys.MAX_SEQS),
            source=SCHEDULER_SOURCE,
            computed={"budget": budget, "seqs": seqs},
        )
    length = whole(config, keys.ROLLOUT_MODEL_LEN) or sequence_tokens(config)
    if length and budget > seqs * length >= 1:
        yield warn(
            "BUDGET_UNREACHABLE",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is more than {seqs} sequences of {length} tokens can fill",
            "the surplus costs activation memory in the engine's profile run and schedules nothing",
            nearest=(f"{keys.MAX_BATCHED_TOKENS}={seqs * length}",),
            keys=(keys.MAX_BATCHED_TOKENS, keys.MAX_SEQS),
            source=SCHEDULER_SOURCE,
            computed={"budget": budget, "usable": seqs * length},
        )


def _sequence_against_model(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    longest, limit = sequence_tokens(config), whole(config, keys.ROLLOUT_MODEL_LEN)
    positions = facts.model.max_positions
    ceiling, name = (limit, keys.ROLLOUT_MODEL_LEN) if limit else (positions, "the model's max_position_embeddings")
    if longest is not None and ceiling is not None and longest > ceiling:
        room = ceiling - (whole(config, keys.PROMPT_LENGTH) or 0)
        yield error(
            "SEQUENCE_GT_MODEL_LEN",
            f"prompt and response may reach {longest} tokens, {name} is {ceiling}",
            "a prompt near the limit leaves no room for its response",
            nearest=(f"{keys.RESPONSE_LENGTH}={room}",) if room > 0 else (),
            keys=(keys.PROMPT_LENGTH, keys.RESPONSE_LENGTH, keys.ROLLOUT_MODEL_LEN),
            source=SERVER_SOURCE,
            computed={"need": longest, "have": ceiling},
        )
    if limit is not None and positions is not None and limit > positions:
        yield error(
            "MODEL_LEN_GT_POSITIONS",
            f"{keys.ROLLOUT_MODEL_LEN} {limit} exceeds the model's {positions} positions",
            "verl refuses it when it starts the rollout server",
            nearest=(f"{keys.ROLLOUT_MODEL_LEN}={positions}",),
            keys=(keys.ROLLOUT_MODEL_LEN,),
            source=SERVER_SOURCE,
        )


def _budget_without_chunks(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    budget = whole(config, keys.MAX_BATCHED_TOKENS)
    length = whole(config, keys.ROLLOUT_MODEL_LEN) or facts.model.max_positions
    if flag(config, keys.ROLLOUT_CHUNKED_PREFILL) is False and budget and length and budget < length:
        yield warn(
            "BUDGET_RAISED_BY_VERL",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is below the model length {length} with chunked prefill off",
            "verl silently raises the budget to the model length, so the knob is not what it says",
            nearest=(f"{keys.ROLLOUT_CHUNKED_PREFILL}=true", f"{keys.MAX_BATCHED_TOKENS}={length}"),
            keys=(keys.MAX_BATCHED_TOKENS, keys.ROLLOUT_CHUNKED_PREFILL),
            source=SERVER_SOURCE,
        )


def _generated_against_kept(config: Config) -> Iterator[PreflightFinding]:
    pairs = (
        (keys.ROLLOUT_RESPONSE_LENGTH, keys.RESPONSE_LENGTH),
        (keys.ROLLOUT_PROMPT_LENGTH, keys.PROMPT_LENGTH),
    )
    for rollout_key, data_key in pairs:
        generated, kept = whole(config, rollout_key), whole(config, data_key)
        if generated is not None and kept is not None and generated != kept:
            yield warn(
                "LENGTHS_DISAGREE",
                f"{rollout_key} is {generated}, {data_key} is {kept}",
                "tokens are generated and cut off again, or the length asked for is never reached",
                nearest=(f"{rollout_key}={kept}",),
                keys=(rollout_key, data_key),
                source="S1 section 5.2; verl trainer/config/rollout/rollout.yaml",
            )


def _utilization(config: Config, most: float) -> Iterator[PreflightFinding]:
    share = number(config, keys.MEMORY_UTILIZATION)
    if share is None:
        return
    if not 0.0 < share <= 1.0:
        yield error(
            "OUT_OF_RANGE",
            f"{keys.MEMORY_UTILIZATION} is {share:g}",
            "it is a share of GPU memory, above 0 and at most 1",
            nearest=(f"{keys.MEMORY_UTILIZATION}=0.5",),
            keys=(keys.MEMORY_UTILIZATION,),
            source="vLLM vllm/config/cache.py",
        )
    elif share > most and not flag(config, keys.ACTOR_PARAM_OFFLOAD):
        yield warn(
            "UTILIZATION_HIGH",
            f"{keys.MEMORY_UTILIZATION} is {share:g} without offloading the actor",
            f"above {most:g} the engine's wake-up is prone to run out of memory beside the actor",
            nearest=(f"{keys.MEMORY_UTILIZATION}={most:g}",),
            keys=(keys.MEMORY_UTILIZATION,),
            source="S1 section 2.1; verl docs/perf/perf_tuning.rst",
        )


def _clamp(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    budget, hidden = whole(config, keys.MAX_BATCHED_TOKENS), facts.model.hidden_size
    if budget is None or facts.gpu_gib is None or not hidden:
        return
    clamp = token_clamp(facts.gpu_gib, hidden)
    if budget > clamp:
        yield warn(
            "BUDGET_ABOVE_CLAMP",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is above {clamp} for {facts.gpu_gib:g} GiB and hidden size {hidden}",
            "a larger profile run shrinks the cache, or runs out of memory",
            nearest=(f"{keys.MAX_BATCHED_TOKENS}={clamp}",),
            keys=(keys.MAX_BATCHED_TOKENS,),
            source="S0 section 2.3",
            computed={"budget": budget, "clamp": clamp},
        )
    elif (worth := candidates(clamp, whole(config, keys.MAX_SEQS) or 1)) and budget not in worth:
        yield info(
            "ADVISE_TOKEN_BUDGET",
            f"{keys.MAX_BATCHED_TOKENS} {budget} is none of the budgets that are usually worth a trial",
            f"S0's formula allows up to {clamp} here, but it is a bound and no answer: throughput decides, and the "
            "smaller budget wins a tie",
            nearest=tuple(f"{keys.MAX_BATCHED_TOKENS}={size}" for size in worth),
            keys=(keys.MAX_BATCHED_TOKENS, keys.MAX_SEQS),
            source="METHOD section 4",
            computed={"budget": budget, "clamp": clamp, "candidates": list(worth)},
        )
