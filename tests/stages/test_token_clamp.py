"""The article's memory formula, with its worked case as a golden."""

from __future__ import annotations

import pytest

from sweep.stages.token_clamp import token_clamp


def test_the_articles_case_of_80_gb_and_hidden_4096_gives_106496():
    assert token_clamp(80, 4096) == 106_496


def test_a_small_model_shows_that_the_formula_is_a_bound_and_no_answer():
    assert token_clamp(80, 896) == 486_838  # METHOD quotes 486,839, rounded


@pytest.mark.parametrize(("gib", "hidden"), [(0, 4096), (80, 0), (-1, 10)])
def test_sizes_must_be_positive(gib: float, hidden: int):
    with pytest.raises(ValueError, match="positive"):
        token_clamp(gib, hidden)
