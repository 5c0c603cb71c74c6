"""Which checkpoints stay, which is the best, and where a run resumes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.checkpoint_policy import BEST_GAIN, KEEP_LAST, Best, better, retention

STATES = st.dictionaries(st.integers(1, 500), st.booleans(), max_size=20)


def test_the_last_three_and_the_best_stay() -> None:
    found = retention({10: True, 20: True, 30: True, 40: True, 50: True, 60: False}, best_step=20)
    assert (found.keep, found.delete, found.partial, found.resume_from) == ((20, 30, 40, 50), (10,), (60,), 50)
    assert KEEP_LAST == 3


def test_a_best_among_the_last_takes_no_place_of_its_own() -> None:
    assert retention({1: True, 2: True, 3: True, 4: True}, best_step=4).keep == (2, 3, 4)


def test_a_partial_checkpoint_is_neither_counted_nor_the_best_nor_resumed_from() -> None:
    found = retention({1: True, 2: False, 3: False, 4: False}, best_step=4)
    assert (found.keep, found.delete, found.resume_from) == ((1,), (), 1)
    assert retention({1: False}, None).resume_from is None


@given(STATES, st.one_of(st.none(), st.integers(1, 500)), st.integers(0, 6))
def test_every_checkpoint_has_one_fate_and_the_newest_complete_one_always_stays(
    states: dict[int, bool], best: int | None, keep_last: int
) -> None:
    found = retention(states, best, keep_last)
    assert sorted((*found.keep, *found.delete, *found.partial)) == sorted(states)
    whole = [step for step, complete in states.items() if complete]
    assert found.resume_from == max(whole, default=None)
    assert found.resume_from is None or found.resume_from in found.keep
    assert not any(step == best for step in found.delete)
    assert len(found.keep) <= max(1, keep_last) + 1


@pytest.mark.parametrize(
    ("reward", "replaced"),
    [(0.5024, False), (0.5025, False), (0.50251, True), (0.4, False), (math.nan, False)],
)
def test_the_best_is_replaced_only_by_a_gain_over_half_a_percent(reward: float, replaced: bool) -> None:
    best = better(Best(1, 0.5), 2, reward)
    assert best == (Best(2, reward) if replaced else Best(1, 0.5))
    assert BEST_GAIN == 0.005


@pytest.mark.parametrize(("reward", "replaced"), [(-1.9949, True), (-1.995, False), (-1.0, True), (-2.5, False)])
def test_a_reward_below_zero_gains_by_coming_nearer_to_it(reward: float, replaced: bool) -> None:
    assert (better(Best(1, -2.005), 2, reward) == Best(2, reward)) == replaced


def test_any_rise_from_zero_is_a_gain_and_the_first_number_is_the_best() -> None:
    assert better(Best(1, 0.0), 2, 1e-9) == Best(2, 1e-9)
    assert better(Best(1, 0.0), 2, 0.0) == Best(1, 0.0)
    assert better(None, 7, -3.0) == Best(7, -3.0)
    assert better(None, 7, math.nan) is None
