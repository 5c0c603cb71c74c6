"""Leaving out any part of the reset is noticed: by the guard, or because the trial comes out differently."""

from __future__ import annotations

import pytest

from tests.engines.verl.live_verl import LiveVerl, Told, differing

pytestmark = pytest.mark.verl

STEPS = 4
SEED = 7
TRIAL: dict[str, object] = {
    "actor_rollout_ref.actor.optim.lr": 2e-3,
    "critic.optim.lr": 4e-3,
    "algorithm.kl_ctrl.kl_coef": 0.01,
    "algorithm.lam": 0.95,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
    "critic.ppo_mini_batch_size": 4,
    "actor_rollout_ref.actor.clip_ratio_low": 0.1,
    "actor_rollout_ref.actor.clip_ratio_high": 0.1,
    "actor_rollout_ref.rollout.max_num_seqs": 1,
}
DISTURBING: dict[str, object] = {
    "actor_rollout_ref.actor.optim.lr": 1e-2,
    "actor_rollout_ref.actor.optim.clip_grad": 0.3,
    "critic.optim.lr": 1e-2,
    "critic.cliprange_value": 0.1,
    "data.train_batch_size": 16,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.temperature": 0.6,
    "actor_rollout_ref.rollout.max_num_seqs": 4,
    "algorithm.kl_ctrl.type": "adaptive",
    "algorithm.kl_ctrl.kl_coef": 0.05,
    "algorithm.kl_ctrl.target_kl": 0.001,
    "algorithm.kl_ctrl.horizon": 100,
}
DISTURBING_SEED = 3

GUARDED = ("actor weights", "critic weights", "actor optimizer", "critic optimizer", "losses")
"""Parts that the guard answers for."""
SEEN = ("configuration", "data", "driver", "agent loops", "rollout settings", "batching")
"""Parts whose absence changes metrics."""


@pytest.fixture(scope="module")
def reference(warm_verl: LiveVerl, world: dict[str, object]) -> Told:
    return warm_verl.run(world | TRIAL, seed=SEED, steps=STEPS)


def after_disturbance(verl: LiveVerl, world: dict[str, object], *left_out: str) -> Told:
    disturbance = verl.run(world | DISTURBING, seed=DISTURBING_SEED, steps=2)
    assert disturbance.one("ended")["error"] == ""
    return verl.run(world | TRIAL, seed=SEED, steps=STEPS, leave_out=left_out)


def test_with_all_parts_the_trial_is_the_same_again(
    warm_verl: LiveVerl, world: dict[str, object], reference: Told
) -> None:
    assert differing(after_disturbance(warm_verl, world), reference) == {}


@pytest.mark.parametrize("part", GUARDED)
def test_the_guard_notices_a_part_that_was_left_out(
    warm_verl: LiveVerl, world: dict[str, object], reference: Told, part: str
) -> None:
    told = after_disturbance(warm_verl, world, part)
    complaints = " ".join(told.one("guard")["complaints"])
    assert part.split()[0] in complaints or (part == "losses" and "loss" in complaints)
    assert ("of a fixed batch" in complaints) == part.endswith("weights")
    assert differing(told, reference) != {}


@pytest.mark.parametrize("part", SEEN)
def test_a_part_that_the_guard_cannot_see_shows_in_the_metrics(
    warm_verl: LiveVerl, world: dict[str, object], reference: Told, part: str
) -> None:
    told = after_disturbance(warm_verl, world, part)
    assert told.one("ended")["error"] or differing(told, reference) != {}


def test_weights_that_were_not_pushed_show_in_the_first_step(
    warm_verl: LiveVerl, world: dict[str, object], reference: Told
) -> None:
    told = after_disturbance(warm_verl, world, "rollout weights", "rollout asleep")
    first_steps = {step for step, _, _ in differing(told, reference).values()}
    assert 1 in first_steps
