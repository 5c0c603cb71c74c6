"""Which differences of outputs on a fixed batch count, over ranks and roles."""

from __future__ import annotations

import math

import pytest

from sweep.engines.verl.plugins.fixed_batch import TOLERANCE, complaints, difference


def test_the_largest_difference_of_any_rank_and_token_is_told_by_role() -> None:
    start = [{"actor": [1.0, 2.0], "critic": [0.5]}, {"actor": [3.0, 4.0], "critic": [0.5]}]
    now = [{"actor": [1.0, 2.25], "critic": [0.5]}, {"actor": [3.5, 4.0], "critic": [0.5]}]
    assert difference(now, start) == {"actor": 0.5, "critic": 0.0}


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_a_number_differs_from_everything(broken: float) -> None:
    assert difference([{"critic": [broken, 1.0]}], [{"critic": [1.0, 1.0]}]) == {"critic": math.inf}


def test_both_sides_of_the_tolerance() -> None:
    assert complaints({"actor": TOLERANCE, "critic": TOLERANCE}) == []
    found = complaints({"actor": TOLERANCE * 1.01, "critic": TOLERANCE * 1.01})
    assert [phrase.split(" of ")[0] for phrase in found] == ["actor: log-probabilities", "critic: values"]


def test_a_rank_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(ValueError):
        difference([], [{"actor": [1.0]}])
