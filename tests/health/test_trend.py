"""The numbers behind the rules, against cases that can be worked out by hand or by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sweep.health.trend import (
    autocorrelation,
    best_level,
    episodes,
    final_level,
    fit_line,
    level_error,
    level_points,
    noise,
    periodicity,
    smooth,
    start_level,
    trailing_run,
)


@pytest.mark.parametrize(
    ("points", "width"), [(0, 0), (1, 1), (3, 1), (6, 2), (9, 3), (100, 10), (199, 19), (5000, 20)]
)
def test_a_level_takes_a_tenth_of_the_points_between_3_and_20_but_never_more_than_a_third(
    points: int, width: int
) -> None:
    assert level_points(points) == width


def test_one_pulse_moves_no_level() -> None:
    values = np.ones(30)
    values[[0, 15, 29]] = 100.0
    assert start_level(values) == final_level(values) == best_level(values) == 1.0


def test_levels_of_nothing_are_nan() -> None:
    assert all(math.isnan(f(np.array([]))) for f in (start_level, final_level, best_level))


def test_noise_is_the_standard_deviation_and_a_trend_adds_nothing() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(0, 0.5, 4000) + np.linspace(0, 100, 4000)
    assert noise(values) == pytest.approx(0.5, rel=0.05)
    assert noise(np.linspace(0, 7, 50)) == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_level_sees_autocorrelation() -> None:
    draw = np.random.default_rng(1)
    white = draw.normal(0, 1, 2000)
    red = np.zeros(2000)
    for i in range(1, 2000):
        red[i] = 0.9 * red[i - 1] + white[i] * math.sqrt(1 - 0.81)
    assert level_error(red) > 2 * level_error(white)


def test_a_straight_line_is_fitted_exactly() -> None:
    steps = np.arange(10, 110, 10)
    fit = fit_line(steps, 3.0 + 0.25 * steps)
    assert fit.slope == pytest.approx(0.25) and fit.slope_error == pytest.approx(0, abs=1e-9)
    assert fit.correlation == pytest.approx(1.0)


def test_two_points_or_one_step_give_no_slope() -> None:
    assert math.isnan(fit_line(np.array([1, 2]), np.array([1.0, 2.0])).slope)
    assert math.isnan(fit_line(np.array([5, 5, 5]), np.array([1.0, 2.0, 3.0])).slope)


def test_the_slope_error_covers_the_truth_under_autocorrelation() -> None:
    draw = np.random.default_rng(2)
    steps = np.arange(200)
    outside = 0
    for _ in range(300):
        values = draw.normal(0, 1, 200)
        for i in range(1, 200):
            values[i] += 0.5 * values[i - 1]
        fit = fit_line(steps, values)
        outside += abs(fit.slope) > 2 * fit.slope_error
    assert outside / 300 < 0.10


def test_smoothing_starts_at_the_first_value_and_skips_what_is_not_finite() -> None:
    assert smooth(np.array([2.0, 2.0, 2.0]), 0.99).tolist() == pytest.approx([2.0] * 3)
    assert smooth(np.array([math.nan, 1.0, math.inf, 1.0]), 0.5).tolist()[1:] == pytest.approx([1.0, 1.0, 1.0])


def test_smoothing_weighs_as_trackers_do() -> None:
    assert smooth(np.array([0.0, 1.0]), 0.5)[1] == pytest.approx((0.5 * 0 + 1 * 1) / 1.5 * 1.0, abs=0.01)


def test_episodes_and_trailing_runs_are_counted() -> None:
    mask = np.array([True, True, False, True, False, False, True])
    assert episodes(mask) == 3 and trailing_run(mask) == 1
    assert trailing_run(np.array([False, False])) == 0 and trailing_run(np.array([True] * 4)) == 4
    assert episodes(np.array([], dtype=bool)) == 0 and trailing_run(np.array([], dtype=bool)) == 0


def test_a_sine_is_found_with_its_period_and_noise_is_not() -> None:
    steps = np.arange(400)
    draw = np.random.default_rng(3)
    cycle = periodicity(np.sin(2 * np.pi * steps / 20) + draw.normal(0, 0.3, 400) + 0.01 * steps)
    assert cycle.period_points == pytest.approx(20) and cycle.p_value < 1e-6 and cycle.share > 0.6
    chances = [periodicity(draw.normal(0, 1, 400)).p_value for _ in range(200)]
    assert sum(p < 0.01 for p in chances) <= 8


def test_a_short_or_constant_series_has_no_cycle() -> None:
    assert periodicity(np.arange(10.0)).p_value == 1.0
    assert periodicity(np.zeros(100)).p_value == 1.0


def test_a_constant_has_no_autocorrelation() -> None:
    assert autocorrelation(np.ones(5)) == 0.0
