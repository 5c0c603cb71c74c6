"""Rank correlations against scipy's, and what believing the wrong ranking costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweep.engines.vllm.ranking import compare, kendall, ranks, spearman

SERIES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12)


def test_equal_values_share_their_mean_rank() -> None:
    assert ranks([3.0, 1.0, 3.0]) == [2.5, 1.0, 2.5]


@given(SERIES)
def test_both_correlations_are_scipys_ties_included(pairs: list[tuple[int, int]]) -> None:
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(spearman(a, b)) and math.isnan(kendall(a, b))
        return
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_the_same_ranking_costs_nothing() -> None:
    found = compare({"a": 1.0, "b": 5.0, "c": 3.0}, {"a": 10.0, "b": 30.0, "c": 20.0})
    assert (found.points, found.spearman, found.kendall, found.lost_share) == (3, 1.0, 1.0, 0.0)


def test_the_wrong_best_costs_the_share_that_it_lies_behind() -> None:
    found = compare({"a": 9.0, "b": 5.0}, {"a": 30.0, "b": 40.0})
    assert (found.short_best, found.full_best, found.lost_share, found.spearman) == ("a", "b", 0.25, -1.0)


def test_points_that_only_one_has_measured_are_left_out() -> None:
    found = compare({"a": 1.0, "b": 2.0, "c": math.nan}, {"b": 7.0, "c": 1.0, "d": 9.0})
    assert (found.points, found.short_best, found.lost_share) == (1, "b", 0.0)
    assert math.isnan(found.spearman)


def test_nothing_in_common_is_nan_and_no_error() -> None:
    found = compare({"a": 1.0}, {"b": 1.0})
    assert found.points == 0 and math.isnan(found.lost_share) and found.short_best is None
