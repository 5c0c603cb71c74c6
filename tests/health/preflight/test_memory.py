"""Memory estimates: weights in the rollout's share, training state, logits."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity
from sweep.health.preflight.memory import GIB, cache_tokens, training_state_gib

from .sound import SOUND, codes, only


def facts(billions: float, gib: float = 80.0, vocabulary: int | None = None) -> Facts:
    return Facts(model=ModelFacts(parameters=billions * 1e9, vocabulary=vocabulary), gpu_gib=gib)


@pytest.mark.parametrize(("ranks", "code"), [(1, "WEIGHTS_EXCEED_SHARE"), (2, None), (4, None)])
def test_weights_fit_the_rollouts_share_of_all_its_ranks(ranks: int, code: str | None) -> None:
    named = [
        c for c in codes({keys.TENSOR_PARALLEL: ranks}, facts(32)) if c in ("WEIGHTS_EXCEED_SHARE", "KV_SHARE_SMALL")
    ]
    assert named == ([code] if code else [])


def test_the_smallest_tensor_parallel_size_with_room_for_a_cache_is_proposed() -> None:
    assert only("WEIGHTS_EXCEED_SHARE", {}, facts(32)).nearest == (f"{keys.TENSOR_PARALLEL}=2",)
    assert only("WEIGHTS_EXCEED_SHARE", {}, facts(70)).nearest == (f"{keys.TENSOR_PARALLEL}=8",)


@pytest.mark.parametrize(("share_of_room", "named"), [(0.79, False), (0.81, True), (0.99, True)])
def test_less_than_a_fifth_for_the_cache_is_a_warning(share_of_room: float, named: bool) -> None:
    weights_gib = 40.0 * share_of_room
    model = ModelFacts(parameters=weights_gib * GIB / 2)
    assert ("KV_SHARE_SMALL" in codes({}, Facts(model=model, gpu_gib=80.0))) == named


def test_without_model_or_gpu_nothing_is_said() -> None:
    assert codes({}, Facts(gpu_gib=80.0)) == []
    assert codes({}, Facts(model=ModelFacts(parameters=6e9))) == []


def test_training_state_is_sixteen_bytes_a_parameter_over_all_gpus() -> None:
    state = training_state_gib(SOUND, facts(8))
    assert state["actor"] == pytest.approx(8e9 * 16 / 8 / GIB)
    assert state["critic"] == pytest.approx(state["actor"])
    assert "reference" not in state


def test_a_reference_adds_its_weights_and_offloading_takes_them_away() -> None:
    with_kl = {**SOUND, keys.KL_IN_REWARD: True, keys.ACTOR_STRATEGY: "veomni"}
    assert training_state_gib(with_kl, facts(8))["reference"] == pytest.approx(8e9 * 4 / 8 / GIB)
    assert "reference" not in training_state_gib({**with_kl, keys.REF_PARAM_OFFLOAD: True}, facts(8))
    assert "reference" not in training_state_gib({**with_kl, keys.ACTOR_STRATEGY: "fsdp"}, facts(8))  # always off
    away = {**SOUND, keys.ACTOR_OPTIMIZER_OFFLOAD: True}
    assert training_state_gib(away, facts(8))["actor"] == pytest.approx(8e9 * 8 / 8 / GIB)


def test_a_critic_of_its_own_size_counts_with_that() -> None:
    own = Facts(model=ModelFacts(parameters=8e9), critic_model=ModelFacts(parameters=1e9), gpu_gib=80.0)
    assert training_state_gib(SOUND, own)["critic"] == pytest.approx(1e9 * 16 / 8 / GIB)


def test_a_state_that_leaves_no_room_is_a_warning_and_an_estimate_otherwise() -> None:
    assert only("TRAINING_STATE_EXCEEDS_GPU", {keys.TENSOR_PARALLEL: 2}, facts(32)).severity is Severity.WARN
    assert only("MEMORY_ESTIMATE", {}, facts(0.5)).severity is Severity.INFO


def test_memory_that_the_rollout_keeps_counts_against_training() -> None:
    changes: dict[str, object] = {keys.ROLLOUT_FREE_CACHE: False}
    assert "TRAINING_STATE_EXCEEDS_GPU" in codes(changes, facts(10))
    assert "TRAINING_STATE_EXCEEDS_GPU" not in codes({}, facts(10))
    assert only("TRAINING_STATE_EXCEEDS_GPU", changes, facts(10)).nearest[0] == f"{keys.ROLLOUT_FREE_CACHE}=true"


def test_offload_is_never_the_first_remedy_and_its_price_is_named() -> None:
    finding = only("TRAINING_STATE_EXCEEDS_GPU", {keys.TENSOR_PARALLEL: 2, keys.ROLLOUT_FREE_CACHE: False}, facts(32))
    assert "offload" not in finding.nearest[0]
    assert "costs step time" in finding.why


QWEN_05B = ModelFacts(parameters=0.494e9, layers=24, kv_heads=2, head_size=64)


def test_the_cache_of_a_small_model_is_counted_in_tokens() -> None:
    tokens = cache_tokens({**SOUND, keys.MEMORY_UTILIZATION: 0.4}, QWEN_05B, 80.0)
    assert tokens == int((80 * 0.4 * GIB - 0.494e9 * 2) / (2 * 24 * 2 * 64 * 2))
    assert cache_tokens(SOUND, ModelFacts(parameters=1e9), 80.0) is None


def test_a_cache_below_one_sequence_is_an_error_and_below_all_a_remark() -> None:
    token_bytes = 2 * 24 * 2 * 64 * 2
    for tokens, code in ((767, "KV_CACHE_LT_SEQ"), (769, "KV_CACHE_LT_SEQS"), (256 * 768 + 1, None)):
        gib = (tokens * token_bytes + 0.494e9 * 2) / GIB / 0.5
        named = [c for c in codes({}, Facts(model=QWEN_05B, gpu_gib=gib)) if c.startswith("KV_CACHE")]
        assert named == ([code] if code else [])


def test_logits_of_a_micro_batch_fit_a_gpu() -> None:
    large = facts(0.5, gib=19.0, vocabulary=151_936)
    assert "LOGITS_EXCEED_GPU" in codes({}, large)
    assert "LOGITS_EXCEED_GPU" not in codes({keys.ACTOR_MICRO_BATCH: 8}, large)
    finding = only("LOGITS_EXCEED_GPU", {}, large)
    fitting = int(finding.nearest[0].partition("=")[2])
    assert "LOGITS_EXCEED_GPU" not in codes({keys.ACTOR_MICRO_BATCH: fitting}, large)


@pytest.mark.parametrize(("spare", "named"), [(0, False), (1, True)])
def test_a_budget_above_what_the_cache_holds_is_a_warning(spare: int, named: bool) -> None:
    model = ModelFacts(parameters=8e9, layers=32, kv_heads=8, head_size=128)
    around = Facts(model=model, gpu_gib=40.0)
    held = cache_tokens({**SOUND}, model, 40.0)
    assert held is not None and held > 768
    assert ("BUDGET_EXCEEDS_CACHE" in codes({keys.MAX_BATCHED_TOKENS: held + spare}, around)) == named
