"""Tables: rows in, columns out, absent told from NaN, windows by step."""

from __future__ import annotations

import math

import numpy as np

from sweep.health.metric_table import RECOVERED_POINTS, MetricTable

from .curves import table


def test_rows_come_back_in_order_of_steps_with_nothing_lost() -> None:
    rows = [(3, {"a": 3.0}), (1, {"a": 1.0, "b": -1.0}), (2, {"b": math.inf})]
    assert list(MetricTable.from_rows(rows).rows()) == [
        (1, {"a": 1.0, "b": -1.0}),
        (2, {"b": math.inf}),
        (3, {"a": 3.0}),
    ]


def test_a_metric_that_a_step_did_not_log_is_absent_and_not_nan() -> None:
    series = table({"a": [1.0, None, 3.0]}).series("a")
    assert series is not None
    assert series.steps.tolist() == [1, 3]
    assert series.first_bad_step is None


def test_a_logged_nan_is_a_point_and_cuts_the_sound_part() -> None:
    series = table({"a": [1.0, 2.0, math.nan, 4.0]}).series("a")
    assert series is not None
    assert len(series) == 4
    assert series.first_bad_step == 3
    assert series.sound().values.tolist() == [1.0, 2.0]


def test_a_series_counts_as_recovered_only_after_ten_finite_points() -> None:
    def series(after: int):  # type: ignore[no-untyped-def]
        return table({"a": [1.0] * 40 + [math.nan] + [1.0] * after}).series("a")

    assert not series(RECOVERED_POINTS - 1).recovered
    assert series(RECOVERED_POINTS).recovered
    assert len(series(RECOVERED_POINTS).sound()) == 50


def test_many_bad_points_are_no_recovery_however_many_good_ones_follow() -> None:
    series = table({"a": [1.0, math.nan] * 10 + [1.0] * 20}).series("a")
    assert series is not None and not series.recovered
    assert len(series.sound()) == 1


def test_a_window_counts_steps_and_not_rows() -> None:
    whole = table({"a": [float(n) for n in range(60)]}, steps=range(10, 610, 10))
    window = whole.last_steps(500)
    assert window.steps.tolist() == list(range(110, 610, 10))
    assert whole.last_steps(10_000).span_steps == whole.span_steps == 591


def test_an_empty_table_has_no_series_and_no_span() -> None:
    empty = MetricTable.from_rows([])
    assert len(empty) == 0 and empty.span_steps == 0 and empty.series("a") is None
    assert len(empty.last_steps(5)) == 0


def test_units_are_changed_without_touching_steps() -> None:
    series = table({"a": [1.0, 2.0]}).series("a")
    assert series is not None
    assert np.allclose(series.scaled(1e-4).values, [1e-4, 2e-4])
    assert series.scaled(1.0) is series
