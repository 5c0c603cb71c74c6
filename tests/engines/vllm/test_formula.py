"""S0's formula against measured budgets: the figures of public reports."""

from __future__ import annotations

import pytest

from sweep.engines.vllm.formula import held_against
from sweep.health.preflight.facts import ModelFacts

LLAMA_8B = ModelFacts(layers=32, hidden_size=4096, kv_heads=8, head_size=128)
MEASURED = [(2048, 40_464.0), (8192, 36_720.0)]


def test_the_formulas_budget_is_held_against_the_cache_that_it_would_leave() -> None:
    found = held_against(MEASURED, [], LLAMA_8B, 24)
    assert found is not None
    assert (found.budget, found.exceeds_cache, found.overestimate) == (31_948, True, None)
    assert found.cache_tokens == pytest.approx(22_243, abs=1)
    # 3,744 tokens of 128 KiB were given up for 6,144 tokens of budget
    assert found.activation_gib == pytest.approx(31_948 * 78 / 1024**2, rel=1e-3)


def test_refused_budgets_tell_how_far_the_formula_is_off() -> None:
    found = held_against([(4096, 9_000.0), (8192, 8_000.0)], [16_384], ModelFacts(hidden_size=16_384), 80)
    assert found is not None
    assert (found.budget, found.overestimate, found.activation_gib) == (26_624, 3.25, None)


def test_what_is_not_known_is_left_out() -> None:
    assert held_against(MEASURED, [], ModelFacts(), 24) is None
    alone = held_against([], [], LLAMA_8B, 24)
    assert alone is not None and (alone.cache_tokens, alone.exceeds_cache, alone.overestimate) == (None, None, None)
    assert held_against(MEASURED[:1], [], LLAMA_8B, 24).activation_gib is None  # type: ignore[union-attr]
