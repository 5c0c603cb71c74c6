"""Workloads: repeatable, without shared prefixes, and the same work whatever the seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.engines.vllm.workload import Workload


def test_the_same_seed_repeats_prompts_and_another_shares_no_prefix() -> None:
    workload = Workload(prompts=8, prompt_tokens=16, response_tokens=4)
    first, again, other = workload.prompt_ids(1, 1000), workload.prompt_ids(1, 1000), workload.prompt_ids(2, 1000)
    assert first == again
    assert not {tuple(p[:4]) for p in first} & {tuple(p[:4]) for p in other}


def test_samples_repeat_their_prompt() -> None:
    ids = Workload(prompts=2, prompt_tokens=3, response_tokens=1, samples=3).prompt_ids(0)
    assert len(ids) == 6 and ids[0] == ids[1] == ids[2] != ids[3] == ids[4] == ids[5]


def test_without_a_known_vocabulary_tokens_are_in_every_one() -> None:
    assert max(max(p) for p in Workload(50, 50, 1).prompt_ids(0)) < 256


def test_without_spread_all_responses_are_equally_long() -> None:
    assert Workload(5, 1, 7).response_lengths(3) == [7] * 5


def test_spread_is_symmetric_about_the_mean() -> None:
    lengths = sorted(Workload(prompts=4, prompt_tokens=1, response_tokens=100, spread=0.5).response_lengths(0))
    assert lengths == [62, 88, 112, 138]


@given(
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 300),
    st.floats(0, 0.99),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_every_seed_is_the_same_work_and_no_response_is_empty(
    prompts: int, samples: int, tokens: int, spread: float, one: int, other: int
) -> None:
    workload = Workload(prompts, 5, tokens, samples, spread)
    lengths = workload.response_lengths(one)
    assert sorted(lengths) == sorted(workload.response_lengths(other))
    assert len(lengths) == workload.sequences and min(lengths) >= 1


@pytest.mark.parametrize(
    "wrong",
    [{"prompts": 0}, {"prompt_tokens": 0}, {"response_tokens": 0}, {"samples": 0}, {"spread": 1.0}, {"spread": -0.1}],
)
def test_a_workload_of_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        Workload(**{"prompts": 1, "prompt_tokens": 1, "response_tokens": 1, **wrong})  # type: ignore[arg-type]
