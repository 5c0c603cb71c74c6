"""Trials one after another in one verl, against the same trial in a verl of its own: equal to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.ray_launcher import RayLauncher
from tests.engines.verl.live_verl import LiveVerl, Told, differing

pytestmark = pytest.mark.verl

X_STEPS = 20
WILD: dict[str, object] = {"+sweep.stop_on": ["NON_FINITE"]}
"""These learn too fast for their own good, and are to go on until they are stopped."""
X: dict[str, object] = {
    **WILD,
    "actor_rollout_ref.actor.optim.lr": 2e-3,
    "actor_rollout_ref.actor.optim.lr_warmup_steps": 5,
    "critic.optim.lr": 4e-3,
    "algorithm.kl_ctrl.kl_coef": 0.01,
    "algorithm.lam": 0.95,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
    "critic.ppo_mini_batch_size": 4,
    "actor_rollout_ref.actor.clip_ratio_low": 0.1,
    "actor_rollout_ref.actor.clip_ratio_high": 0.1,
    "actor_rollout_ref.rollout.max_num_seqs": 1,  # so that rounding cannot depend on which requests share a batch
    "trainer.test_freq": 10,
}
X_SEED = 7

Y: dict[str, object] = {
    **WILD,
    "actor_rollout_ref.actor.optim.lr": 5e-3,
    "actor_rollout_ref.actor.optim.weight_decay": 0.3,
    "actor_rollout_ref.actor.optim.clip_grad": 0.2,
    "critic.optim.lr": 1e-2,
    "critic.cliprange_value": 0.1,
    "data.train_batch_size": 16,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
    "actor_rollout_ref.actor.ppo_epochs": 2,
    "actor_rollout_ref.actor.entropy_coeff": 0.01,
    "actor_rollout_ref.rollout.n": 2,
    "actor_rollout_ref.rollout.temperature": 0.7,
    "actor_rollout_ref.rollout.max_num_seqs": 16,
    "algorithm.gamma": 0.99,
    "algorithm.kl_ctrl.type": "band",
    "algorithm.kl_ctrl.kl_coef": 0.002,
    "+algorithm.kl_ctrl.band_interval": 2,
    "+sweep.clip_decay": 0.5,
    "+sweep.schedule_steps": 50,
}
Y_SEED = 3


@pytest.fixture(scope="module")
def cold_x(
    launcher: RayLauncher, world: dict[str, object], warm_verl: LiveVerl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    """X in a verl of its own, while the warm one trains Y on the same cluster."""
    folder: Path = tmp_path_factory.mktemp("cold")
    verl = LiveVerl(launcher, folder, world | X, reuse=False, seed=X_SEED, steps=X_STEPS)
    try:
        ready = verl.ready()
        beside = warm_verl.submit(world | Y, seed=Y_SEED, steps=400)
        told = verl.result()
    finally:
        warm_verl.stop(beside, "the other one is done")
        verl.close()
    assert warm_verl.result().one("ended")["stopped_by"] == "the other one is done"
    yield Told([ready, *told.messages])


def weights(told: Told) -> dict[str, object]:
    return dict(told.one("probe")["weights"])


def assert_equal(told: Told, reference: Told) -> None:
    assert told.one("ended")["error"] == ""
    assert [m["step"] for m in told.of("step")] == list(range(1, X_STEPS + 1))
    assert differing(told, reference) == {}
    assert weights(told) == weights(reference)


def test_a_cold_trial_reaches_its_last_step_and_reports_what_it_learned(cold_x: Told) -> None:
    assert [m["type"] for m in cold_x.messages[:2]] == ["ready", "started"]
    assert cold_x.one("started")["warm"] is False
    ended = cold_x.one("ended")
    assert (ended["last_step"], ended["error"], ended["stopped_by"]) == (X_STEPS, "", "")
    assert len(cold_x.steps[0]) > 80
    assert any(name.startswith("val-core/") for name in cold_x.steps[9])


def test_a_warm_trial_equals_the_cold_one_after_one_that_was_stopped_midway(
    warm_verl: LiveVerl, world: dict[str, object], cold_x: Told
) -> None:
    told = warm_verl.run(world | X, seed=X_SEED, steps=X_STEPS)
    assert_equal(told, cold_x)
    assert told.one("started")["warm"] is True


def test_a_warm_trial_equals_the_cold_one_after_trials_that_failed_or_whose_numbers_broke(
    warm_verl: LiveVerl, world: dict[str, object], cold_x: Told
) -> None:
    refused = warm_verl.run(world | {"data.max_response_length": 8}, seed=1, steps=2).one("ended")
    assert "data.max_response_length" in refused["error"] and refused["reusable"]

    unfit = warm_verl.run(world | {"actor_rollout_ref.actor.ppo_mini_batch_size": 64}, seed=1, steps=2).one("ended")
    assert "must be >= actor.ppo_mini_batch_size (64)" in unfit["error"] and unfit["reusable"]

    broken = warm_verl.run(world | {"actor_rollout_ref.actor.optim.lr": 1e30}, seed=2, steps=30).one("ended")
    assert broken["stopped_by"].startswith("NON_FINITE") and broken["last_step"] < 30

    midway = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 3}
    torn = warm_verl.run(world | midway, seed=1, steps=2).one("ended")
    assert "divisible" in torn["error"] and torn["reusable"]

    assert_equal(warm_verl.run(world | X, seed=X_SEED, steps=X_STEPS), cold_x)
