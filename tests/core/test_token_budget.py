"""The article's memory formula with its worked case as a golden, and the arithmetic that puts it in its place."""

from __future__ import annotations

import pytest

from sweep.core.token_budget import (
    activation_gib,
    cache_tokens_at,
    candidates,
    kv_bytes_per_token,
    overestimate,
    token_clamp,
)


def test_the_articles_case_of_80_gb_and_hidden_4096_gives_106496():
    assert token_clamp(80, 4096) == 106_496


def test_a_small_model_shows_that_the_formula_is_a_bound_and_no_answer():
    assert token_clamp(80, 896) == 486_838  # METHOD quotes 486,839, rounded


@pytest.mark.parametrize(("gib", "hidden"), [(0, 4096), (80, 0), (-1, 10)])
def test_sizes_must_be_positive(gib: float, hidden: int):
    with pytest.raises(ValueError, match="positive"):
        token_clamp(gib, hidden)


@pytest.mark.parametrize(
    ("clamp", "seqs", "expected"),
    [
        (486_838, 1896, (2048, 4096, 8192, 16384, 32768)),
        (486_838, 2048, (2048, 4096, 8192, 16384, 32768)),
        (486_838, 2049, (4096, 8192, 16384, 32768)),
        (32768, 1, (2048, 4096, 8192, 16384, 32768)),
        (32767, 1, (2048, 4096, 8192, 16384)),
        (10**9, 40_000, (40_000,)),
        (10**9, 65_536, (65_536,)),
        (10**9, 65_537, ()),
        (2047, 1, ()),
    ],
)
def test_candidates_lie_between_the_sequences_and_the_clamp(clamp: int, seqs: int, expected: tuple[int, ...]):
    assert candidates(clamp, seqs) == expected


def test_a_token_of_llama_3_8b_takes_128_kib_of_cache():
    assert kv_bytes_per_token(layers=32, kv_heads=8, head_size=128) == 128 * 1024


def test_the_formulas_own_budget_would_take_16_gib_of_activations():
    assert activation_gib(106_496, 161) == pytest.approx(16.35, abs=0.01)


def test_the_formula_is_too_high_by_what_it_allows_beyond_what_worked():
    assert overestimate(token_clamp(80, 16_384), 8192) == 3.25
    assert overestimate(8192, 8192) == 1.0


def test_the_cache_shrinks_along_a_line_and_never_below_nothing():
    measured = [(2048, 40_464), (8192, 36_720)]
    assert cache_tokens_at(8192, measured) == pytest.approx(36_720)
    assert cache_tokens_at(31_949, measured) == pytest.approx(22_243, abs=1)
    assert cache_tokens_at(10**6, measured) == 0.0
    assert cache_tokens_at(31_949, measured[:1]) == 40_464
    with pytest.raises(ValueError, match="no budget"):
        cache_tokens_at(1, [])
