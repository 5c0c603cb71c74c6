"""What memory costs, and what a guard's change does to the ranking."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.errors import ConfigError
from sweep.health.oom_remedies import OffloadTrial, comparability, offload_tradeoff, remedies

MEASURED = [OffloadTrial(0.0, 0.752, 15.24), OffloadTrial(0.5, 1.187, 14.13), OffloadTrial(1.0, 1.678, 10.53)]


def test_offload_is_weighed_by_its_extremes_in_any_order() -> None:
    for trials in (MEASURED, MEASURED[::-1]):
        tradeoff = offload_tradeoff(trials)
        assert tradeoff.slowdown == pytest.approx(2.23, abs=0.005)
        assert tradeoff.memory_saved_gib == pytest.approx(4.71)


@pytest.mark.parametrize("trials", [[], MEASURED[:1], [OffloadTrial(0.0, 0.0, 1.0), OffloadTrial(1.0, 1.0, 1.0)]])
def test_offload_cannot_be_weighed_without_two_measurements(trials: list[OffloadTrial]) -> None:
    with pytest.raises(ConfigError):
        offload_tradeoff(trials)


def test_offload_is_the_last_remedy_and_says_its_price() -> None:
    moves = remedies(offload_tradeoff(MEASURED))
    assert {moves[-1].knob, moves[-2].knob} == {keys.ACTOR_PARAM_OFFLOAD, keys.ACTOR_OPTIMIZER_OFFLOAD}
    assert "2.23 times the step time" in moves[-1].detail
    assert moves[0].knob == keys.ACTOR_MICRO_BATCH


@pytest.mark.parametrize(
    ("before", "after", "matters", "comparable", "tag"),
    [
        ({keys.CRITIC_MICRO_BATCH: 8}, {keys.CRITIC_MICRO_BATCH: 4}, True, False, "micro_batch_changed"),
        ({keys.CRITIC_MICRO_BATCH: 8}, {keys.CRITIC_MICRO_BATCH: 4}, False, True, "micro_batch_changed"),
        ({keys.MEMORY_UTILIZATION: 0.6}, {keys.MEMORY_UTILIZATION: 0.5}, True, True, "memory_settings_changed"),
        ({keys.MINI_BATCH: 256}, {keys.MINI_BATCH: 128}, False, False, "setting_changed"),
        ({keys.MINI_BATCH: 256}, {keys.MINI_BATCH: 256}, True, True, ""),
        ({}, {keys.ACTOR_PARAM_OFFLOAD: True}, True, True, "memory_settings_changed"),
    ],
)
def test_a_retry_is_comparable_if_its_gradient_is_the_same(
    before: dict[str, object], after: dict[str, object], matters: bool, comparable: bool, tag: str
) -> None:
    result = comparability(before, after, matters)
    assert (result.comparable, result.tag) == (comparable, tag)
