"""The benchmark of a campaign's size plays its no-op campaigns to their end."""

from __future__ import annotations

from benchmarks.bench_scale import LEAST_WINDOW, grow


def test_a_no_op_campaign_ends_and_its_trials_are_timed() -> None:
    meter = grow(2 * LEAST_WINDOW)
    assert len(meter.seconds) == 2 * LEAST_WINDOW
    assert meter.milliseconds_at(LEAST_WINDOW) > 0
