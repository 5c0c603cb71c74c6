"""The guard names whatever a reset left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.engines.verl.plugins.guard import Expected, complaints
from sweep.engines.verl.plugins.reset import RoleState

ACTOR = RoleState({"a": (1, 2), "b": (3, 4)}, start_lr=1e-3, loss={"clip_ratio_low": 0.2})
REFERENCE = RoleState({"a": (1, 2)})
START = [{"actor": ACTOR, "reference": REFERENCE}]
EXPECTED = {"actor": Expected(1e-3, {"clip_ratio_low": 0.2})}


def test_a_rank_at_its_start_gives_no_complaint() -> None:
    assert complaints(START, START, EXPECTED) == []


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"weights": {"a": (1, 2), "b": (3, 5)}}, "1 of 2 tensors changed"),
        ({"weights": {"a": (1, 2)}}, "1 of 2 tensors changed"),
        ({"optimizer_entries": 2}, "2 optimizer entries left"),
        ({"gradients": 1}, "1 gradients left"),
        ({"schedule_step": 4}, "schedule at step 4"),
        ({"start_lr": 2e-3}, "learning rate 0.002 instead of 0.001"),
        ({"loss": {"clip_ratio_low": 0.1}}, "loss {'clip_ratio_low': 0.1}"),
    ],
)
def test_each_trace_of_an_earlier_trial_is_named(change: dict[str, object], phrase: str) -> None:
    now = [{"actor": replace(ACTOR, **change), "reference": REFERENCE}]  # type: ignore[arg-type]
    (found,) = complaints(now, START, EXPECTED)
    assert found.startswith("rank 0 actor: ") and phrase in found


def test_a_reference_that_changed_is_noticed_although_nothing_trains_it() -> None:
    now = [{"actor": ACTOR, "reference": RoleState({"a": (9, 9)})}]
    assert complaints(now, START, EXPECTED) == ["rank 0 reference: 1 of 1 tensors changed"]


def test_every_rank_counts() -> None:
    bad = {"actor": replace(ACTOR, schedule_step=1), "reference": REFERENCE}
    assert complaints([START[0], bad], START * 2, EXPECTED) == ["rank 1 actor: schedule at step 1"]
    assert complaints(START, START * 2, EXPECTED) == ["1 ranks answered, 2 were there at the start"]
    assert complaints([{"actor": ACTOR}], START, EXPECTED) == [
        "rank 0 plays ['actor'] instead of ['actor', 'reference']"
    ]
