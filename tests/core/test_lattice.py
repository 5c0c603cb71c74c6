"""Properties and worked cases of the mini-batch lattice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.lattice import (
    LatticePoint,
    mini_batch_unit,
    nearest_multiple,
    nearest_valid,
    project,
    train_batch_unit,
    valid_mini_batches,
)
from sweep.errors import ConfigError

ranks = st.sampled_from([1, 2, 3, 4, 6, 8, 16])
micros = st.one_of(st.none(), st.integers(1, 20))
samples = st.integers(1, 16)
log_probs = st.one_of(st.none(), st.sampled_from([1, 2, 4, 8, 16]))


@pytest.mark.parametrize(
    ("requested", "layout", "expected"),
    [
        (358.4, {}, (358, 358)),
        (358.4, {"data_parallel": 8, "micro_batch_per_gpu": 4}, (352, 352)),
        (412.0, {"data_parallel": 8, "micro_batch_per_gpu": 4}, (416, 416)),
        (412.0, {"data_parallel": 8, "micro_batch_per_gpu": 10}, (400, 400)),
        (412.0, {"data_parallel": 8, "micro_batch_per_gpu": 10, "rollout_n": 5}, (416, 416)),
    ],
)
def test_the_articles_moves_from_512_land_on_valid_neighbours(
    requested: float, layout: dict[str, int], expected: tuple[int, int]
) -> None:
    point = project(requested, train_batch=512, **layout)
    assert (point.mini_batch, point.train_batch) == expected
    assert point.requested == requested


def test_the_train_batch_moves_to_the_nearest_multiple_not_to_the_next_smaller_one() -> None:
    assert project(352, train_batch=1024).train_batch == 1056
    assert project(300, train_batch=1024).train_batch == 900


def test_a_train_batch_that_is_already_a_multiple_stays() -> None:
    assert project(128, train_batch=512, data_parallel=8, micro_batch_per_gpu=4) == LatticePoint(128, 512, 128)


def test_a_request_above_the_train_batch_takes_the_train_batch_along() -> None:
    assert project(588.8, train_batch=512, data_parallel=8, micro_batch_per_gpu=4) == LatticePoint(576, 576, 588.8)


def test_a_request_below_the_smallest_valid_mini_batch_gives_that_one() -> None:
    assert project(3, train_batch=64, data_parallel=8, micro_batch_per_gpu=2).mini_batch == 16


def test_a_tie_goes_to_the_smaller_size() -> None:
    assert nearest_multiple(24, 16) == 16
    assert nearest_multiple(24.01, 16) == 32
    assert nearest_multiple(23.99, 16) == 16


def test_a_log_prob_micro_batch_that_would_multiply_the_train_batch_moves_the_mini_batch_instead() -> None:
    layout = {"train_batch": 512, "data_parallel": 8, "micro_batch_per_gpu": 4}
    free = project(352, **layout)
    bound = project(352, log_prob_micro_batch_per_gpu=16, **layout)
    assert (free.mini_batch, free.train_batch) == (352, 352)
    assert (bound.mini_batch, bound.train_batch) == (320, 640)


def test_a_log_prob_micro_batch_that_the_pair_meets_anyway_moves_nothing() -> None:
    layout = {"train_batch": 512, "data_parallel": 8, "micro_batch_per_gpu": 4}
    assert project(352, log_prob_micro_batch_per_gpu=4, **layout) == project(352, **layout)


def test_a_pinned_critic_mini_batch_keeps_the_train_batch_a_multiple_of_both() -> None:
    point = project(96, train_batch=512, pinned_critic_mini_batch=128)
    assert point.train_batch == 384


def test_a_critic_that_follows_on_other_ranks_takes_part_in_the_unit() -> None:
    assert mini_batch_unit(data_parallel=4, critic_data_parallel=8) == 8
    assert mini_batch_unit(data_parallel=4, micro_batch_per_gpu=3, critic_data_parallel=8) == 24
    assert mini_batch_unit(data_parallel=4, critic_data_parallel=8, rollout_n=2) == 4
    assert project(84, train_batch=512, data_parallel=4, sequence_parallel=2).mini_batch == 84
    assert project(84, train_batch=512, data_parallel=4, sequence_parallel=2, critic_data_parallel=8).mini_batch == 80
    assert valid_mini_batches(120, data_parallel=4, critic_data_parallel=8) == (8, 24, 40, 120)


def test_several_samples_a_prompt_make_smaller_mini_batches_valid() -> None:
    assert mini_batch_unit(data_parallel=8, rollout_n=1) == 8
    assert mini_batch_unit(data_parallel=8, rollout_n=4) == 2
    assert mini_batch_unit(data_parallel=8, rollout_n=5) == 8


def test_sequence_parallel_ranks_count_for_the_train_batch() -> None:
    assert train_batch_unit(data_parallel=4, sequence_parallel=2) == 8
    assert train_batch_unit(data_parallel=4, sequence_parallel=1) == 4


def test_valid_mini_batches_of_an_unchanged_train_batch_are_its_even_divisors() -> None:
    assert valid_mini_batches(512, data_parallel=8, micro_batch_per_gpu=4) == (32, 64, 128, 256, 512)
    assert valid_mini_batches(100, data_parallel=8) == ()


@pytest.mark.parametrize("requested", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_request_that_is_no_positive_number_is_refused(requested: float) -> None:
    with pytest.raises(ConfigError, match="positive number"):
        project(requested, train_batch=512)


@pytest.mark.parametrize(
    "name", ["train_batch", "data_parallel", "micro_batch_per_gpu", "rollout_n", "critic_data_parallel"]
)
def test_a_size_of_zero_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        project(100, **{"train_batch": 512, name: 0})


@settings(deadline=None)
@given(
    requested=st.floats(0.1, 4096),
    train_batch=st.integers(1, 4096),
    dp=ranks,
    micro=micros,
    n=samples,
    sp=st.sampled_from([1, 2, 4]),
    log_prob=log_probs,
)
def test_every_projection_satisfies_all_of_verls_conditions(
    requested: float, train_batch: int, dp: int, micro: int | None, n: int, sp: int, log_prob: int | None
) -> None:
    point = project(
        requested,
        train_batch=train_batch,
        data_parallel=dp,
        micro_batch_per_gpu=micro,
        rollout_n=n,
        sequence_parallel=sp,
        log_prob_micro_batch_per_gpu=log_prob,
    )
    assert point.train_batch % point.mini_batch == 0
    assert point.mini_batch * n % (dp * (micro or 1)) == 0
    assert point.train_batch * n % (dp * sp) == 0
    assert point.train_batch * n % (dp * (log_prob or 1)) == 0
    wanted = max(train_batch, point.mini_batch)
    assert wanted * 2 / 3 <= point.train_batch <= wanted * 4 / 3


@settings(deadline=None)
@given(requested=st.floats(0.1, 4096), dp=ranks, micro=micros, n=samples)
def test_no_valid_mini_batch_is_nearer_than_the_projected_one(
    requested: float, dp: int, micro: int | None, n: int
) -> None:
    point = project(requested, train_batch=512, data_parallel=dp, micro_batch_per_gpu=micro, rollout_n=n)
    valid = [size for size in range(1, 5000) if size * n % (dp * (micro or 1)) == 0]
    assert abs(point.mini_batch - requested) == min(abs(size - requested) for size in valid)


@settings(deadline=None)
@given(requested=st.floats(0.1, 4096), train_batch=st.integers(1, 4096), dp=ranks, micro=micros, n=samples)
def test_projecting_a_projection_changes_nothing(
    requested: float, train_batch: int, dp: int, micro: int | None, n: int
) -> None:
    layout = {"data_parallel": dp, "micro_batch_per_gpu": micro, "rollout_n": n}
    once = project(requested, train_batch=train_batch, **layout)
    twice = project(once.mini_batch, train_batch=once.train_batch, **layout)
    assert (twice.mini_batch, twice.train_batch) == (once.mini_batch, once.train_batch)


@settings(deadline=None)
@given(train_batch=st.integers(1, 4096), dp=ranks, micro=micros, n=samples)
def test_valid_mini_batches_are_exactly_the_sizes_that_meet_the_conditions(
    train_batch: int, dp: int, micro: int | None, n: int
) -> None:
    brute = tuple(
        size for size in range(1, train_batch + 1) if train_batch % size == 0 and size * n % (dp * (micro or 1)) == 0
    )
    assert valid_mini_batches(train_batch, data_parallel=dp, micro_batch_per_gpu=micro, rollout_n=n) == brute


def test_beside_a_train_batch_that_stays_a_move_lands_on_the_nearest_size_by_ratio():
    sizes = valid_mini_batches(1024, data_parallel=8, micro_batch_per_gpu=4)
    assert sizes == (32, 64, 128, 256, 512, 1024)
    assert nearest_valid(179.2, sizes, besides=256) == 128
    assert nearest_valid(294.4, sizes, besides=256) == 512  # not where it came from
    assert nearest_valid(181.1, (128, 256), besides=0) == 256
    assert nearest_valid(181.0, (128, 256), besides=0) == 128
    assert nearest_valid(100.0, (256,), besides=256) is None
