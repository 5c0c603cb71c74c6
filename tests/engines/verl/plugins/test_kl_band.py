"""The KL band controller: S0's rule on the mean over an interval."""

from __future__ import annotations

import math

import pytest

from sweep.core.kl_band import KlBandSettings, next_coefficient
from sweep.engines.verl.plugins.kl_band import KlBand

DEFAULTS = KlBandSettings()


def after(kl_values: list[float], start: float = 0.001, **settings: object) -> float:
    band = KlBand(start, KlBandSettings.of({"band_interval": len(kl_values), **settings}))
    for kl in kl_values:
        band.update(current_kl=kl, n_steps=64)
    return band.value


@pytest.mark.parametrize(
    ("kl", "factor"),
    [(0.1800001, 1.2), (0.18, 1.0), (0.1, 1.0), (0.04, 1.0), (0.0399999, 0.8), (0.0, 0.8), (-0.01, 0.8), (5.0, 1.2)],
)
def test_above_the_band_raises_below_it_lowers_and_its_edges_belong_to_it(kl: float, factor: float) -> None:
    assert next_coefficient(0.001, kl, DEFAULTS) == pytest.approx(0.001 * factor)


def test_nothing_changes_before_the_interval_is_over() -> None:
    band = KlBand(0.001, DEFAULTS)
    for step in range(1, 301):
        band.update(1.0, 64)
        assert band.value == pytest.approx(0.001 * 1.2 ** (step // 100))


def test_the_mean_over_the_interval_decides_not_the_last_value() -> None:
    assert after([0.5, 0.5, 0.5, 0.01]) == pytest.approx(0.0012)
    assert after([0.01, 0.01, 0.01, 0.12]) == pytest.approx(0.0008)


@pytest.mark.parametrize(
    ("start", "kl", "end"), [(0.009, 1.0, 0.01), (0.01, 1.0, 0.01), (0.0006, 0.0, 0.0005), (0.0005, 0.0, 0.0005)]
)
def test_the_coefficient_stops_at_its_bounds(start: float, kl: float, end: float) -> None:
    assert next_coefficient(start, kl, DEFAULTS) == pytest.approx(end)


@pytest.mark.parametrize(
    ("start", "kl", "end"), [(0.05, 1.0, 0.05), (0.05, 0.0, 0.04), (0.0001, 0.0, 0.0001), (0.0001, 1.0, 0.00012)]
)
def test_a_start_outside_the_bounds_only_moves_towards_them(start: float, kl: float, end: float) -> None:
    assert next_coefficient(start, kl, DEFAULTS) == pytest.approx(end)


@pytest.mark.parametrize(
    ("start", "kl", "held"),
    [
        (0.009, 1.0, True),
        (0.01, 1.0, True),
        (0.008, 1.0, False),
        (0.01, 0.1, False),
        (0.01, 0.0, False),
        (0.0006, 0.0, True),
        (0.0005, 0.1, False),
        (0.0007, 0.0, False),
    ],
)
def test_a_controller_says_that_its_bound_holds_it(start: float, kl: float, held: bool) -> None:
    band = KlBand(start, KlBandSettings.of({"band_interval": 1}))
    assert band.at_bound is False
    band.update(kl, 64)
    assert band.at_bound is held


def test_a_kl_that_is_not_a_number_counts_for_nothing() -> None:
    assert after([math.nan, 0.3, math.inf]) == pytest.approx(0.0012)
    assert after([math.nan, math.nan]) == 0.001


def test_a_restored_controller_goes_on_where_it_was() -> None:
    whole, first = KlBand(0.001, DEFAULTS), KlBand(0.001, DEFAULTS)
    values = [0.001 * step for step in range(250)]
    for kl in values:
        whole.update(kl, 64)
    for kl in values[:130]:
        first.update(kl, 64)
    second = KlBand(0.7, DEFAULTS)
    second.load_state_dict(first.state_dict())
    for kl in values[130:]:
        second.update(kl, 64)
    assert second.state_dict() == pytest.approx(whole.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"band_low": 0.2, "band_high": 0.1},
        {"band_low": 0.1, "band_high": 0.1},
        {"band_raise": 0.9},
        {"band_lower": 1.1},
        {"band_lower": 0.0},
        {"band_interval": 0},
        {"band_interval": 2.5},
        {"band_high": "wide"},
        {"coef_min": 0.02, "coef_max": 0.01},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.kl_ctrl of type band needs"):
        KlBandSettings.of(settings)


def test_the_defaults_are_the_articles() -> None:
    assert (DEFAULTS.band_low, DEFAULTS.band_high) == (0.04, 0.18)
    assert (DEFAULTS.band_raise, DEFAULTS.band_lower, DEFAULTS.band_interval) == (1.2, 0.8, 100)
    assert (DEFAULTS.coef_min, DEFAULTS.coef_max) == (0.0005, 0.01)
