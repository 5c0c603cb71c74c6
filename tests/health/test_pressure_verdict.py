"""The pressure check's verdict: the floor, what counts as steady, and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.health.hardware import GpuSample
from sweep.health.pressure_verdict import DEFAULT, MAX_TOKENS, REQUESTS, Answers, Verdict, judge

ANSWERED = Answers(sent=10, complete=10, tokens=1280, seconds=2.0, most_at_once=10)


def samples(*free_gib: float | None, gpu: int = 0) -> list[GpuSample]:
    return [GpuSample(seconds=0.2 * i, gpu=gpu, total_gib=80.0, free_gib=free) for i, free in enumerate(free_gib)]


def test_the_defaults_are_the_articles() -> None:
    assert (REQUESTS, MAX_TOKENS, DEFAULT.free_gib) == (10, 128, 5.0)


@pytest.mark.parametrize(("free_gib", "verdict"), [(5.0, Verdict.PASSES), (4.99, Verdict.LOW_MEMORY)])
def test_the_floor_itself_is_enough_and_a_little_less_is_not(free_gib: float, verdict: Verdict) -> None:
    assert judge(samples(*[free_gib] * 5), ANSWERED).verdict is verdict


def test_a_single_low_sample_fails_the_check() -> None:
    found = judge(samples(20, 20, 4, 20, 20), ANSWERED)
    assert (found.verdict, found.lowest_gib, found.range_gib) == (Verdict.LOW_MEMORY, 4, 16)


@pytest.mark.parametrize(
    ("lowest", "verdict"), [(7.0, Verdict.PASSES), (6.99, Verdict.UNSTEADY)], ids=["just fits", "would not fit"]
)
def test_a_fall_that_repeated_would_leave_the_floor_is_not_steady(lowest: float, verdict: Verdict) -> None:
    assert judge(samples(9.0, 9.0, lowest, lowest, lowest), ANSWERED).verdict is verdict


@pytest.mark.parametrize(("moved", "verdict"), [(0.25, Verdict.PASSES), (0.26, Verdict.UNSTEADY)])
def test_a_small_range_is_steady_even_near_the_floor(moved: float, verdict: Verdict) -> None:
    assert judge(samples(5.0 + moved, 5.0, 5.0, 5.0, 5.0), ANSWERED).verdict is verdict


def test_large_movements_high_above_the_floor_do_no_harm() -> None:
    assert judge(samples(60, 35, 60, 40, 60), ANSWERED).passed


@pytest.mark.parametrize(("count", "verdict"), [(5, Verdict.PASSES), (4, Verdict.NOT_MEASURED)])
def test_too_few_samples_say_nothing(count: int, verdict: Verdict) -> None:
    assert judge(samples(*[20.0] * count), ANSWERED).verdict is verdict


def test_samples_without_memory_are_none() -> None:
    assert judge(samples(*[None] * 9), ANSWERED).verdict is Verdict.NOT_MEASURED


def test_every_gpu_needs_enough_samples() -> None:
    found = judge([*samples(*[20.0] * 9), *samples(20.0, 20.0, gpu=1)], ANSWERED)
    assert (found.verdict, "2 times" in found.reason) == (Verdict.NOT_MEASURED, True)


def test_the_worst_gpu_decides() -> None:
    found = judge([*samples(*[20.0] * 5), *samples(*[4.0] * 5, gpu=1), *samples(*[6.0] * 5, gpu=2)], ANSWERED)
    assert (found.verdict, found.gpu) == (Verdict.LOW_MEMORY, 1)


def test_of_passing_gpus_the_one_with_least_memory_is_named() -> None:
    found = judge([*samples(*[20.0] * 5), *samples(*[8.0] * 5, gpu=3)], ANSWERED)
    assert (found.passed, found.gpu, found.lowest_gib) == (True, 3, 8.0)


def test_unanswered_requests_fail_the_check_whatever_the_memory() -> None:
    found = judge(samples(*[60.0] * 9), replace(ANSWERED, complete=9, error="HTTP 500"))
    assert (found.verdict, found.reason) == (Verdict.REQUESTS_FAILED, "9 of 10 requests were answered: HTTP 500")


def test_no_requests_are_no_check() -> None:
    assert judge(samples(*[60.0] * 9), Answers(0, 0, 0, 0.0)).verdict is Verdict.REQUESTS_FAILED


def test_limits_can_be_replaced() -> None:
    assert judge(samples(*[8.0] * 5), ANSWERED, replace(DEFAULT, free_gib=9.0)).verdict is Verdict.LOW_MEMORY


def test_throughput_is_tokens_over_seconds_and_0_without_time() -> None:
    assert (ANSWERED.tokens_per_s, replace(ANSWERED, seconds=0.0).tokens_per_s) == (640.0, 0.0)
