"""Batch sizes: each rule on both sides of its threshold, with values that would pass."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Severity

from .sound import codes, found, only


def passes(changes: dict[str, object], nearest: str) -> bool:
    """Whether the value that was proposed takes the finding away."""
    key, _, value = nearest.partition("=")
    return not any(
        c
        in (
            "TRAIN_LT_MINI",
            "MINI_ZERO_AFTER_NORM",
            "MINI_NOT_MULTIPLE_OF_RANKS",
            "MICRO_GT_NORMALISED_MINI",
            "MICRO_NOT_DIVIDING_MINI",
            "TRAIN_NOT_MULTIPLE_OF_GPUS",
            "TRAIN_NOT_MULTIPLE_OF_MINI",
        )
        for c in codes({**changes, key: int(value)})
    )


@pytest.mark.parametrize(("train", "named"), [(127, True), (128, False)])
def test_a_train_batch_below_the_mini_batch_is_an_error_for_actor_and_critic(train: int, named: bool) -> None:
    roles = {f.computed["role"] for f in found({keys.TRAIN_BATCH: train}) if f.code == "TRAIN_LT_MINI"}
    assert roles == ({"actor", "critic"} if named else set())


def test_dynamic_batches_do_not_switch_the_check_off() -> None:
    assert "TRAIN_LT_MINI" in codes({keys.TRAIN_BATCH: 64, keys.ACTOR_DYNAMIC_BATCH: True})


def test_a_critic_that_is_not_trained_is_not_checked() -> None:
    assert codes({keys.CRITIC_MINI_BATCH: 512, keys.ADV_ESTIMATOR: "reinforce_plus_plus"}) == []
    assert "TRAIN_LT_MINI" in codes(
        {keys.CRITIC_MINI_BATCH: 512, keys.ADV_ESTIMATOR: "reinforce_plus_plus", keys.CRITIC_ENABLE: True}
    )


def test_a_remainder_is_padding_in_v1_and_an_error_in_the_older_trainer() -> None:
    changes: dict[str, object] = {keys.MINI_BATCH: 96, keys.CRITIC_MINI_BATCH: 96, keys.ACTOR_MICRO_BATCH: 4}
    new = [f for f in found(changes) if f.code == "TRAIN_NOT_MULTIPLE_OF_MINI"]
    old = [f for f in found({**changes, keys.USE_V1: False}) if f.code == "TRAIN_NOT_MULTIPLE_OF_MINI"]
    assert {f.severity for f in new} == {Severity.WARN}
    assert {f.severity for f in old} == {Severity.ERROR}
    assert new[0].nearest == (f"{keys.TRAIN_BATCH}=288", f"{keys.TRAIN_BATCH}=192")


def test_a_mini_batch_smaller_than_the_ranks_normalises_to_zero() -> None:
    changes: dict[str, object] = {keys.MINI_BATCH: 1, keys.ROLLOUT_N: 4, keys.ACTOR_MICRO_BATCH: 1}
    finding = only("MINI_ZERO_AFTER_NORM", changes)
    assert (finding.computed["rows"], finding.computed["mini_per_gpu"]) == (4, 0)
    assert finding.nearest == (f"{keys.MINI_BATCH}=2",)
    assert passes(changes, finding.nearest[0])


def test_a_mini_batch_that_does_not_spread_over_the_ranks_is_an_error() -> None:
    finding = only(
        "MINI_NOT_MULTIPLE_OF_RANKS", {keys.MINI_BATCH: 100, keys.TRAIN_BATCH: 200, keys.CRITIC_MINI_BATCH: 200}
    )
    assert finding.nearest == (f"{keys.MINI_BATCH}=96", f"{keys.MINI_BATCH}=104")


@pytest.mark.parametrize(
    ("micro", "code"),
    [(16, None), (17, "MICRO_GT_NORMALISED_MINI"), (5, "MICRO_NOT_DIVIDING_MINI"), (8, None)],
)
def test_a_micro_batch_divides_the_share_of_a_rank(micro: int, code: str | None) -> None:
    named = [c for c in codes({keys.ACTOR_MICRO_BATCH: micro}) if c.startswith("MICRO_")]
    assert named == ([code] if code else [])


def test_the_article_of_faith_of_normalisation_is_computed() -> None:
    changes: dict[str, object] = {
        keys.TRAIN_BATCH: 64,
        keys.MINI_BATCH: 16,
        keys.CRITIC_MINI_BATCH: 64,
        keys.ACTOR_MICRO_BATCH: 16,
        keys.CRITIC_MICRO_BATCH: 1,
        keys.ROLLOUT_N: 5,
    }
    finding = only("MICRO_GT_NORMALISED_MINI", changes)
    assert (finding.computed["mini_per_gpu"], finding.computed["valid_micro"]) == (10, [1, 2, 5, 10])
    assert finding.nearest == (f"{keys.ACTOR_MICRO_BATCH}=10", f"{keys.MINI_BATCH}=128")
    assert passes(changes, finding.nearest[0])


def test_a_critics_micro_batch_is_only_a_warning_where_the_trainer_ignores_it() -> None:
    assert only("MICRO_NOT_DIVIDING_MINI", {keys.CRITIC_MICRO_BATCH: 5}).severity is Severity.WARN
    assert only("MICRO_NOT_DIVIDING_MINI", {keys.CRITIC_MICRO_BATCH: 5, keys.USE_V1: False}).severity is Severity.ERROR


def test_dynamic_batches_make_the_micro_batch_idle() -> None:
    changes = {keys.ACTOR_MICRO_BATCH: 5, keys.ACTOR_DYNAMIC_BATCH: True, keys.ROLLOUT_LOG_PROB_DYNAMIC: True}
    assert not any(code.startswith("MICRO") for code in codes(changes))


def test_sequence_parallel_ranks_share_a_micro_batch() -> None:
    assert "MICRO_GT_NORMALISED_MINI" not in codes({keys.ACTOR_MICRO_BATCH: 32, keys.ULYSSES: 2})
    assert "MICRO_GT_NORMALISED_MINI" in codes({keys.ACTOR_MICRO_BATCH: 32, keys.ULYSSES: 1})


def test_the_deprecated_ulysses_key_still_counts() -> None:
    assert "MICRO_GT_NORMALISED_MINI" not in codes({keys.ACTOR_MICRO_BATCH: 32, keys.ACTOR_ULYSSES_OLD: 2})


def test_a_train_batch_that_does_not_spread_over_the_gpus_is_refused_by_verl_itself() -> None:
    changes: dict[str, object] = {
        keys.TRAIN_BATCH: 252,
        keys.MINI_BATCH: 252,
        keys.CRITIC_MINI_BATCH: 252,
        keys.ACTOR_MICRO_BATCH: 1,
        keys.CRITIC_MICRO_BATCH: 1,
        keys.LOG_PROB_MICRO_BATCH: 1,
    }
    assert only("TRAIN_NOT_MULTIPLE_OF_GPUS", changes).severity is Severity.ERROR
    assert "TRAIN_NOT_MULTIPLE_OF_GPUS" not in codes({**changes, keys.GPUS_PER_NODE: 4, keys.TENSOR_PARALLEL: 1})
    dynamic = {**changes, keys.ACTOR_DYNAMIC_BATCH: True}
    assert only("TRAIN_NOT_MULTIPLE_OF_GPUS", dynamic).severity is Severity.WARN


@pytest.mark.parametrize("key", [keys.TRAIN_BATCH, keys.MINI_BATCH])
def test_an_empty_batch_is_an_error(key: str) -> None:
    assert "BATCH_NOT_POSITIVE" in codes({key: 0})


def test_megatron_has_other_ranks_and_is_left_alone() -> None:
    assert "MINI_NOT_MULTIPLE_OF_RANKS" not in codes({keys.MINI_BATCH: 100, keys.ACTOR_STRATEGY: "megatron"})
