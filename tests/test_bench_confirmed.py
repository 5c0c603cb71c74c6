"""The figures of a confirmation: known ratios from made curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.confirmed import change, compare, summary

from sweep.core.curve import Curve
from sweep.errors import ConfigError

METRICS = {"timing_s/gen": 1.0, "perf/throughput": 100.0}


def curve(gain: float, step_seconds: float, **more: float) -> Curve:
    """A straight line up from 0.1 over 20 steps."""
    rows = []
    for step in range(1, 21):
        row = {"critic/score/mean": 0.1 + gain * (step - 1) / 19, "timing_s/step": step_seconds}
        rows.append((step, METRICS | row | more))
    return Curve.from_rows(rows)


def test_twice_the_gain_in_half_the_time_is_four_times_as_much_a_second() -> None:
    own = {seed: curve(0.4, 1.0, **{"timing_s/gen": 0.5}) for seed in (1, 2)}
    base = {seed: curve(0.2, 2.0) for seed in (1, 2)}
    found = compare(own, base, [own, base])
    assert found["paired_by_seed"] and found["seeds"] == [[1, 2], [1, 2]]
    assert found["reward_per_gpu_second_ratio"] == pytest.approx(4.0, rel=0.01)
    assert found["fitted_gain_per_gpu_second_ratio"] == pytest.approx(4.0, rel=0.01)
    assert found["ratio_low"] <= found["reward_per_gpu_second_ratio"] <= found["ratio_high"]
    assert found["gen_time_change"] == pytest.approx(-0.5)
    assert found["throughput_gain"] == pytest.approx(0.0)
    assert found["step_time_change"] == pytest.approx(-0.5)


def test_other_seeds_are_compared_without_pairing() -> None:
    found = compare({1: curve(0.4, 1.0)}, {7: curve(0.2, 1.0)}, [])
    assert not found["paired_by_seed"] and found["seeds"] == [[1], [7]]


def test_a_change_has_welchs_interval_and_none_from_a_single_run() -> None:
    found = change("x", [1.0, 1.21], [1.0, 1.0])
    assert found["x"] == pytest.approx(0.1)
    assert (found["x_low"], found["x_high"]) == pytest.approx((-0.6723, 2.6926), abs=1e-4)  # t = 12.706 of one degree
    assert change("x", [2.0], [1.0, 1.0]) == {"x": 1.0, "x_low": None, "x_high": None}


def test_a_campaign_that_confirmed_nothing_says_so(tmp_path: Path) -> None:
    from sweep.adapters.optuna_store import OptunaStore

    OptunaStore.open(f"sqlite:///{tmp_path / 'optuna.db'}", "a").close()
    with pytest.raises(ConfigError, match="no trial of its winner"):
        summary(tmp_path)
