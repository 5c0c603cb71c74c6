"""GPUs, tensor parallelism, Ulysses, heads and removed options."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity
from sweep.health.preflight.parallel import fitting_tensor_parallel, fitting_ulysses

from .sound import codes, only

QWEN_05B = ModelFacts(attention_heads=14, kv_heads=2)
QWEN_7B = ModelFacts(attention_heads=28, kv_heads=4)


def test_tensor_parallel_two_does_not_fit_one_gpu() -> None:
    changes = {keys.GPUS_PER_NODE: 1, keys.TENSOR_PARALLEL: 2}
    finding = only("TP_NOT_DIVIDING_WORLD", changes)
    assert (finding.computed["world"], finding.computed["tp"]) == (1, 2)
    assert finding.nearest == (f"{keys.TENSOR_PARALLEL}=1",)


@pytest.mark.parametrize(("size", "named"), [(1, False), (2, False), (3, True), (8, False), (16, True)])
def test_tensor_parallelism_divides_the_gpus(size: int, named: bool) -> None:
    assert ("TP_NOT_DIVIDING_WORLD" in codes({keys.TENSOR_PARALLEL: size})) == named


def test_two_nodes_count_together() -> None:
    assert "TP_NOT_DIVIDING_WORLD" not in codes({keys.TENSOR_PARALLEL: 16, keys.NODES: 2})


def test_data_parallel_replicas_count_too() -> None:
    assert "TP_NOT_DIVIDING_WORLD" in codes({keys.TENSOR_PARALLEL: 4, keys.ROLLOUT_DP: 4})


@pytest.mark.parametrize(("model", "size", "named"), [(QWEN_05B, 2, False), (QWEN_05B, 4, True), (QWEN_7B, 4, False)])
def test_tensor_parallelism_divides_the_heads(model: ModelFacts, size: int, named: bool) -> None:
    assert ("TP_NOT_DIVIDING_HEADS" in codes({keys.TENSOR_PARALLEL: size}, Facts(model=model))) == named


def test_key_value_heads_are_split_or_repeated_whole() -> None:
    odd = ModelFacts(attention_heads=24, kv_heads=6)
    assert "TP_NOT_DIVIDING_HEADS" in codes({keys.TENSOR_PARALLEL: 4}, Facts(model=odd))
    assert "TP_NOT_DIVIDING_HEADS" not in codes({keys.TENSOR_PARALLEL: 2}, Facts(model=odd))


def test_an_unknown_model_is_passed_over_in_silence() -> None:
    assert "TP_NOT_DIVIDING_HEADS" not in codes({keys.TENSOR_PARALLEL: 8})


def test_the_articles_four_is_illegal_for_fourteen_heads() -> None:
    changes = {keys.ULYSSES: 4, keys.ACTOR_MICRO_BATCH: 16}
    finding = only("SP_NOT_DIVIDING_HEADS", changes, Facts(model=QWEN_05B))
    assert finding.computed["fitting"] == [1, 2]
    assert finding.nearest[0] == f"{keys.ULYSSES}=2"
    assert "SP_NOT_DIVIDING_HEADS" not in codes(changes, Facts(model=QWEN_7B))


def test_sizes_that_fit_follow_verls_rules() -> None:
    assert fitting_ulysses(8, QWEN_05B) == (1, 2)
    assert fitting_ulysses(14, QWEN_05B) == (1, 2, 14)
    assert fitting_ulysses(8, ModelFacts()) == (1, 2, 4, 8)
    assert fitting_tensor_parallel(8, 28) == (1, 2, 4)
    assert fitting_tensor_parallel(6, None) == (1, 2, 3, 6)


def test_sequence_parallelism_divides_the_gpus_and_needs_packing() -> None:
    assert "SP_NOT_DIVIDING_WORLD" in codes({keys.ULYSSES: 3})
    assert "SP_NEEDS_REMOVE_PADDING" in codes({keys.ULYSSES: 2, keys.MODEL_REMOVE_PADDING: False})
    assert "SP_NEEDS_REMOVE_PADDING" not in codes({keys.ULYSSES: 1, keys.MODEL_REMOVE_PADDING: False})


def test_the_critic_has_its_own_size_and_by_default_the_same_model() -> None:
    facts = Facts(model=QWEN_05B)
    assert only("SP_NOT_DIVIDING_HEADS", {keys.CRITIC_ULYSSES: 4}, facts).keys == (keys.CRITIC_ULYSSES,)
    other = {keys.CRITIC_ULYSSES: 4, keys.CRITIC_MODEL_PATH: "/models/other"}
    assert "SP_NOT_DIVIDING_HEADS" not in codes(other, facts)
    assert "SP_NEEDS_REMOVE_PADDING" in codes({keys.CRITIC_ULYSSES: 2, keys.CRITIC_REMOVE_PADDING: False})


@pytest.mark.parametrize(("present", "named"), [(7, True), (8, False), (None, False)])
def test_more_gpus_than_there_are_is_an_error(present: int | None, named: bool) -> None:
    assert ("GPUS_MISSING" in codes({}, Facts(gpu_count=present))) == named


def test_options_that_no_longer_exist_are_named() -> None:
    assert only("REMOVED_OPTION", {keys.ROLLOUT_MODE: "sync"}).nearest == (f"{keys.ROLLOUT_MODE}=async",)
    assert only("REMOVED_OPTION", {keys.ROLLOUT_NAME: "hf"}).nearest == (f"{keys.ROLLOUT_NAME}=vllm",)
    assert "REMOVED_OPTION" in codes({keys.ROLLOUT_PP: 2})
    assert "REMOVED_OPTION" not in codes({keys.ROLLOUT_NAME: "sglang"})


def test_a_rollout_engine_must_be_named() -> None:
    assert "ROLLOUT_NAME_MISSING" in codes({keys.ROLLOUT_NAME: "???"})


def test_closed_sets_of_values_are_checked() -> None:
    assert only("UNKNOWN_OPTION", {keys.ACTOR_SCHEDULER: "linear"}).nearest[1] == f"{keys.ACTOR_SCHEDULER}=cosine"
    assert "UNKNOWN_OPTION" not in codes({keys.ACTOR_SCHEDULER: "cosine"})
    assert "UNKNOWN_OPTION" in codes({keys.ACTOR_STRATEGY: "fdsp"})


@pytest.mark.parametrize(("lam", "named"), [(1.0, False), (0.0, False), (1.01, True), (-0.01, True)])
def test_lambda_lies_between_0_and_1(lam: float, named: bool) -> None:
    assert ("OUT_OF_RANGE" in codes({keys.LAM: lam})) == named


def test_validation_cannot_sample_at_temperature_0() -> None:
    assert "VAL_SAMPLING_COLD" in codes({keys.ROLLOUT_VAL_SAMPLE: True, keys.ROLLOUT_TEMPERATURE: 0})
    assert "VAL_SAMPLING_COLD" not in codes({keys.ROLLOUT_VAL_SAMPLE: True})


def test_a_group_of_one_has_no_advantage() -> None:
    assert only("GROUP_OF_ONE", {keys.ADV_ESTIMATOR: "grpo"}).severity is Severity.ERROR
    assert "GROUP_OF_ONE" not in codes({keys.ADV_ESTIMATOR: "grpo", keys.ROLLOUT_N: 5})
    assert "GROUP_OF_ONE" not in codes({keys.ADV_ESTIMATOR: "gae"})


@pytest.mark.parametrize(
    ("temperature", "code"), [(1.0, None), (0.01, None), (0.0, "ROLLOUT_GREEDY"), (-0.1, "OUT_OF_RANGE")]
)
def test_training_samples_are_sampled(temperature: float, code: str | None) -> None:
    assert codes({keys.ROLLOUT_TEMPERATURE: temperature}) == ([code] if code else [])


def test_greedy_validation_needs_one_answer() -> None:
    assert "VAL_COPIES" in codes({keys.ROLLOUT_VAL_N: 4})
    assert "VAL_COPIES" not in codes({keys.ROLLOUT_VAL_N: 4, keys.ROLLOUT_VAL_SAMPLE: True})
    assert "VAL_COPIES" not in codes({keys.ROLLOUT_VAL_N: 1})


def test_no_samples_at_all_are_an_error() -> None:
    assert "OUT_OF_RANGE" in codes({keys.ROLLOUT_N: 0})


@pytest.mark.parametrize(("tensor", "pipeline", "named"), [(4, 2, False), (4, 4, True), (3, 1, True)])
def test_megatrons_model_copies_use_up_the_gpus(tensor: int, pipeline: int, named: bool) -> None:
    changes = {keys.ACTOR_STRATEGY: "megatron", keys.MEGATRON_TP: tensor, keys.MEGATRON_PP: pipeline}
    assert ("MEGATRON_NOT_DIVIDING_WORLD" in codes(changes)) == named


@pytest.mark.parametrize(
    ("version", "named"), [("0.9.1", False), ("0.9.1+local", False), ("0.8.0", True), (None, False)]
)
def test_another_verl_than_the_checks_know_is_a_warning(version: str | None, named: bool) -> None:
    assert ("VERL_VERSION" in codes({}, Facts(verl_version=version))) == named


def test_mixed_precision_is_a_mapping() -> None:
    assert "MIXED_PRECISION_NOT_A_MAPPING" in codes({keys.ACTOR_MIXED_PRECISION: True})
