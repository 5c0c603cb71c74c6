"""What one trial that ran out of GPU memory says about others."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Outcome
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.stages.memory_bound import MemoryBound
from tests.adapters.store_stages import finished

AT = {keys.MAX_BATCHED_TOKENS: 8192, keys.MAX_SEQS: 256, keys.ACTOR_LR: 1e-6, "actor_rollout_ref.model.path": "m"}


def trial(seed: int = 0, **changes: object) -> Trial:
    return Trial(Overrides.of({**AT, **{_key(name): value for name, value in changes.items()}}), seed, 20)


def _key(name: str) -> str:
    return {"path": "actor_rollout_ref.model.path"}.get(name) or getattr(keys, name)


def bound(outcome: Outcome | None = None) -> MemoryBound:
    found = MemoryBound()
    found.learn(trial(), outcome or Failed(FailureClass.OOM_GPU, "out of memory"))
    return found


@pytest.mark.parametrize(
    "other",
    [
        trial(),
        trial(seed=7),
        trial(MAX_BATCHED_TOKENS=8193),
        trial(MAX_BATCHED_TOKENS=16384, MAX_SEQS=512),
        trial(MAX_BATCHED_TOKENS=16384, ACTOR_LR=2e-6, LAM=0.9, KL_COEF=0.01),
    ],
)
def test_the_same_point_and_larger_ones_are_ruled_out_whatever_does_not_take_memory(other: Trial) -> None:
    assert bound().rules_out(other) == trial()


@pytest.mark.parametrize(
    "other",
    [
        trial(MAX_BATCHED_TOKENS=8191),
        trial(MAX_BATCHED_TOKENS=16384, MAX_SEQS=255),
        trial(path="another model"),
        trial(MEMORY_UTILIZATION=0.9),
        trial(MAX_BATCHED_TOKENS=None),
    ],
)
def test_smaller_ones_and_ones_that_cannot_be_compared_are_not(other: Trial) -> None:
    assert bound().rules_out(other) is None


@pytest.mark.parametrize(
    "outcome", [finished(), Failed(FailureClass.OOM_HOST, "host memory"), Failed(FailureClass.HANG, "silent")]
)
def test_other_ends_rule_nothing_out(outcome: Outcome) -> None:
    assert bound(outcome).rules_out(trial()) is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_trial_that_finished_with_as_much_memory_shows_that_the_other_ran_out_by_chance(order: int) -> None:
    ends = [(trial(), Failed(FailureClass.OOM_GPU, "out of memory")), (trial(ACTOR_LR=3e-6, MAX_SEQS=512), finished())]
    found = MemoryBound()
    for one, outcome in ends[::order]:
        found.learn(one, outcome)
    assert found.rules_out(trial(MAX_BATCHED_TOKENS=16384)) is None


def test_a_trial_that_finished_with_less_memory_shows_nothing() -> None:
    found = bound()
    found.learn(trial(MAX_BATCHED_TOKENS=4096), finished())
    assert found.rules_out(trial()) == trial()


def test_a_trial_that_only_generates_says_nothing_about_one_that_trains() -> None:
    generated = Trial(trial().overrides, 0, 20, Measure.ROLLOUT)
    assert bound().rules_out(generated) is None
