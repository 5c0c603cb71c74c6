"""Advice: INFO only, each inside verl's real limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity

from .sound import codes, found, only

QWEN_05B = ModelFacts(parameters=0.5e9, attention_heads=14, kv_heads=2)
QWEN_7B = ModelFacts(parameters=7.6e9, attention_heads=28, kv_heads=4)


def test_all_advice_is_a_remark() -> None:
    changes = {
        keys.ACTOR_MICRO_BATCH: 2,
        keys.LOG_PROB_MICRO_BATCH: 32,
        keys.ACTOR_RESHARD: False,
        keys.DATA_SEED: None,
    }
    advice = [f for f in found(changes, Facts(model=QWEN_7B)) if f.code.startswith("ADVISE")]
    assert len(advice) >= 4
    assert {f.severity for f in advice} == {Severity.INFO}


def test_eight_way_ulysses_becomes_four_as_far_as_the_heads_allow() -> None:
    changes = {keys.ULYSSES: 8, keys.ACTOR_MICRO_BATCH: 128}
    assert only("ADVISE_ULYSSES", changes).nearest == (f"{keys.ULYSSES}=4",)
    assert only("ADVISE_ULYSSES", changes, Facts(model=QWEN_05B)).nearest == (f"{keys.ULYSSES}=2",)


def test_long_sequences_on_one_rank_are_told_of_ulysses_and_short_ones_are_not() -> None:
    long = {keys.RESPONSE_LENGTH: 40_000, keys.ROLLOUT_RESPONSE_LENGTH: 40_000, keys.CRITIC_INFER_MAX_TOKENS: 50_000}
    assert only("ADVISE_ULYSSES", long).nearest == (f"{keys.ULYSSES}=4",)
    assert "ADVISE_ULYSSES" not in codes({})
    assert only("ADVISE_ULYSSES", {keys.ULYSSES: 2}).nearest == (f"{keys.ULYSSES}=1",)


def test_a_single_gpu_gets_no_advice_on_parallelism() -> None:
    changes = {keys.GPUS_PER_NODE: 1, keys.RESPONSE_LENGTH: 40_000, keys.ROLLOUT_RESPONSE_LENGTH: 40_000}
    assert "ADVISE_ULYSSES" not in codes(changes)


def test_a_larger_tensor_parallel_size_than_the_weights_need_is_remarked_on() -> None:
    facts = Facts(model=QWEN_05B, gpu_gib=80)
    assert only("ADVISE_TP", {keys.TENSOR_PARALLEL: 2}, facts).nearest == (f"{keys.TENSOR_PARALLEL}=1",)
    assert "ADVISE_TP" not in codes({keys.TENSOR_PARALLEL: 1}, facts)


@pytest.mark.parametrize(("parameters", "named"), [(7e9, True), (6.99e9, False)])
def test_fsdp_advice_begins_with_large_models(parameters: float, named: bool) -> None:
    assert ("ADVISE_FSDP" in codes({}, Facts(model=ModelFacts(parameters=parameters)))) == named


def test_a_unit_larger_than_a_layer_takes_away_what_sharding_saves() -> None:
    model = Facts(model=replace(QWEN_7B, layers=28))
    wide = only("WRAP_ABOVE_LAYER", {keys.ACTOR_WRAP_PARAMS: 10**9}, model)
    assert wide.severity is Severity.WARN and wide.nearest == (f"{keys.ACTOR_WRAP_PARAMS}=0",)
    layer = int(QWEN_7B.parameters / 28)
    assert "WRAP_ABOVE_LAYER" in codes({keys.ACTOR_WRAP_PARAMS: layer + 1}, model)
    assert "WRAP_ABOVE_LAYER" not in codes({keys.ACTOR_WRAP_PARAMS: layer}, model)
    assert "WRAP_ABOVE_LAYER" not in codes({keys.ACTOR_WRAP_PARAMS: 0}, model)


def test_fsdp2_does_not_read_a_minimum_size() -> None:
    second = {keys.ACTOR_STRATEGY: "fsdp2"}
    assert "WRAP_UNREAD" in codes({**second, keys.ACTOR_WRAP_PARAMS: 1}, Facts(model=QWEN_7B))
    assert "WRAP_UNREAD" not in codes(second, Facts(model=QWEN_7B))


@pytest.mark.parametrize(("tokens", "named"), [(2 * 16 * 768 - 1, True), (2 * 16 * 768, False)])
def test_a_critic_takes_twice_the_actors_tokens(tokens: int, named: bool) -> None:
    assert ("ADVISE_CRITIC_TOKENS" in codes({keys.CRITIC_INFER_MAX_TOKENS: tokens})) == named


def test_the_critics_advice_follows_dynamic_batches_and_is_the_v1_trainers_alone() -> None:
    dynamic = {keys.ACTOR_DYNAMIC_BATCH: True, keys.ACTOR_TOKENS: 30_000}
    advice = only("ADVISE_CRITIC_TOKENS", dynamic)
    assert advice.nearest == (f"+{keys.CRITIC_INFER_MAX_TOKENS}=60000",)
    assert "ADVISE_CRITIC_TOKENS" not in codes({**dynamic, keys.USE_V1: False})
    assert "ADVISE_CRITIC_TOKENS" not in codes({**dynamic, keys.ADV_ESTIMATOR: "grpo", keys.ROLLOUT_N: 5})


def test_offload_is_never_offered_as_an_accelerator() -> None:
    finding = only("ADVISE_OFFLOAD", {keys.ACTOR_PARAM_OFFLOAD: True}, Facts(model=QWEN_7B))
    assert "costs time" in finding.why
    proposed = [value for f in found({}, Facts(model=QWEN_7B)) if f.code.startswith("ADVISE") for value in f.nearest]
    assert not any("offload" in value for value in proposed)


def test_a_denser_micro_batch_is_the_next_that_divides() -> None:
    assert only("ADVISE_MICRO", {keys.ACTOR_MICRO_BATCH: 4}).nearest[0] == f"{keys.ACTOR_MICRO_BATCH}=8"
    assert "ADVISE_MICRO" not in codes({keys.ACTOR_MICRO_BATCH: 16})


def test_a_log_prob_micro_batch_above_twenty_is_remarked_on() -> None:
    assert "ADVISE_LOG_PROB_MICRO" in codes({keys.LOG_PROB_MICRO_BATCH: 32})
    assert "ADVISE_LOG_PROB_MICRO" not in codes({keys.LOG_PROB_MICRO_BATCH: 16})


def test_a_null_seed_makes_no_replicates() -> None:
    assert "DATA_SEED_NULL" in codes({keys.DATA_SEED: None})
    assert "DATA_SEED_NULL" not in codes({keys.DATA_SEED: 7})
