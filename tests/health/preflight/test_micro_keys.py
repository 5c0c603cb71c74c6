"""Micro-batch keys: exactly one of each pair, and log-prob sizes that divide."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys

from .sound import codes, only

PAIRS = [
    (keys.ACTOR_MICRO_BATCH, keys.ACTOR_MICRO_GLOBAL, {}),
    (keys.CRITIC_MICRO_BATCH, keys.CRITIC_MICRO_GLOBAL, {}),
    (keys.LOG_PROB_MICRO_BATCH, keys.ROLLOUT_LOG_PROB_MICRO_GLOBAL, {}),
    (keys.REF_MICRO_BATCH, keys.REF_LOG_PROB_MICRO_GLOBAL, {keys.KL_IN_REWARD: True}),
]


@pytest.mark.parametrize(("per_gpu", "old", "beside"), PAIRS)
def test_neither_and_both_are_errors_and_one_is_right(per_gpu: str, old: str, beside: dict[str, object]) -> None:
    assert only("MICRO_KEYS", {per_gpu: None, **beside}).keys[0] == per_gpu
    assert only("MICRO_KEYS", {old: 64, **beside}).nearest == (f"{old}=null",)
    assert "MICRO_KEYS" not in codes({per_gpu: 8, **beside})


def test_a_reference_that_is_not_loaded_needs_no_size() -> None:
    assert "MICRO_KEYS" not in codes({keys.REF_MICRO_BATCH: None})
    assert "MICRO_KEYS" in codes({keys.REF_MICRO_BATCH: None, keys.KL_LOSS: True})


def test_dynamic_batches_need_no_sizes() -> None:
    changes = {
        keys.ACTOR_DYNAMIC_BATCH: True,
        keys.ROLLOUT_LOG_PROB_DYNAMIC: True,
        keys.CRITIC_DYNAMIC: True,
        keys.ACTOR_MICRO_BATCH: None,
        keys.CRITIC_MICRO_BATCH: None,
        keys.LOG_PROB_MICRO_BATCH: None,
    }
    assert codes(changes) == []


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_a_size_that_is_no_positive_whole_number_is_an_error(size: float) -> None:
    assert "MICRO_KEYS" in codes({keys.ACTOR_MICRO_BATCH: size})


def test_training_and_log_prob_agree_on_dynamic_batches() -> None:
    finding = only("DYNAMIC_BSZ_MISMATCH", {keys.ACTOR_DYNAMIC_BATCH: True})
    assert finding.nearest == (f"{keys.ROLLOUT_LOG_PROB_DYNAMIC}=true",)


@pytest.mark.parametrize(("micro", "named"), [(32, False), (16, False), (33, True), (24, True), (64, True)])
def test_a_log_prob_micro_batch_divides_what_a_rank_has_of_a_step(micro: int, named: bool) -> None:
    assert ("LOG_PROB_MICRO_NOT_DIVIDING" in codes({keys.LOG_PROB_MICRO_BATCH: micro})) == named


def test_the_rows_are_those_after_padding() -> None:
    changes = {keys.TRAIN_BATCH: 200, keys.LOG_PROB_MICRO_BATCH: 16}
    assert "LOG_PROB_MICRO_NOT_DIVIDING" not in codes(changes)


def test_a_log_prob_micro_batch_that_would_pass_is_proposed() -> None:
    finding = only("LOG_PROB_MICRO_NOT_DIVIDING", {keys.LOG_PROB_MICRO_BATCH: 24})
    assert finding.nearest[0] == f"{keys.LOG_PROB_MICRO_BATCH}=16"


def test_the_reference_is_held_to_the_same_rule_only_where_it_is_loaded() -> None:
    assert "LOG_PROB_MICRO_NOT_DIVIDING" not in codes({keys.REF_MICRO_BATCH: 24})
    assert "LOG_PROB_MICRO_NOT_DIVIDING" in codes({keys.REF_MICRO_BATCH: 24, keys.KL_IN_REWARD: True})
