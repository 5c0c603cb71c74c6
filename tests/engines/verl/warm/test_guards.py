"""Each guard acting inside a real verl: what stops a trial, what refuses one, and what becomes of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engines.verl.live_verl import LiveVerl, Told

pytestmark = pytest.mark.verl

SAVING = {"trainer.save_freq": 1, "+sweep.keep_last": 2, "+sweep.best_gain": 0.005}


def ended_by(told: Told, code: str) -> None:
    """The trial was stopped by the finding, which its record names, and verl serves on."""
    ended = told.one("ended")
    assert ended["error"] == "" and ended["reusable"], ended
    assert ended["stopped_by"].startswith(f"{code} at step "), ended
    assert ended["last_step"] == len(told.of("step"))


@pytest.mark.parametrize(
    ("code", "settings", "most"),
    [
        ("NON_FINITE", {"actor_rollout_ref.actor.optim.lr": 1e30}, 10),
        (
            "KL_EXPLOSION",  # a policy that runs away, judged by a limit that it passes within a few steps
            {
                "actor_rollout_ref.actor.optim.lr": 2e-2,
                "+sweep.limits.kl_explosion": 1e-4,
                "+sweep.limits.kl_mean_steps": 4,
            },
            30,
        ),
        ("GRAD_EXPLOSION", {"+sweep.limits.grad_explosion": 1e-6}, 12),
        ("ENTROPY_COLLAPSE", {"+sweep.limits.entropy_floor": 50.0}, 5),
    ],
)
def test_a_finding_that_leaves_no_hope_stops_the_trial(
    warm_verl: LiveVerl, world: dict[str, object], code: str, settings: dict[str, object], most: int
) -> None:
    told = warm_verl.run(world | settings, seed=2, steps=most)
    ended_by(told, code)
    assert told.one("ended")["last_step"] < most


def test_a_reward_that_is_always_zero_stops_the_trial(warm_verl: LiveVerl, world: dict[str, object]) -> None:
    warm_verl.no_reward.touch()
    try:
        told = warm_verl.run(world | {"+sweep.limits.all_zero_dead_points": 3}, seed=2, steps=6)
    finally:
        warm_verl.no_reward.unlink()
    ended_by(told, "REWARD_ALL_ZERO")
    assert told.one("ended")["last_step"] == 3


def test_a_guard_that_is_left_out_stops_nothing(warm_verl: LiveVerl, world: dict[str, object]) -> None:
    lax = {"+sweep.limits.grad_explosion": 1e-6, "+sweep.stop_on": ["NON_FINITE"]}
    ended = warm_verl.run(world | lax, seed=2, steps=11).one("ended")
    assert (ended["last_step"], ended["stopped_by"], ended["error"]) == (11, "", "")


def test_a_trial_is_refused_while_a_device_has_too_little_memory_free(
    warm_verl: LiveVerl, world: dict[str, object]
) -> None:
    refused = warm_verl.run(world | {"+sweep.min_free_gib": 1e6}, seed=1, steps=2)
    ended = refused.one("ended")
    assert refused.of("step") == [] and ended["reusable"]
    assert "too little memory is free to start a trial, wanted 1e+06 GiB" in ended["error"]
    assert "GiB on the device of rank 0" in ended["error"]
    assert warm_verl.run(world | {"+sweep.min_free_gib": 0.01}, seed=1, steps=1).one("ended")["error"] == ""


def test_the_best_checkpoint_and_the_last_ones_are_kept(
    warm_verl: LiveVerl, world: dict[str, object], tmp_path: Path
) -> None:
    told = warm_verl.run(world | SAVING, seed=3, steps=5, over={"trainer.default_local_dir": str(tmp_path)})
    assert told.one("ended")["error"] == ""
    rewards = told.column("critic/score/mean")
    best = 1
    for step, reward in enumerate(rewards, start=1):
        best = step if reward > rewards[best - 1] + 0.005 * abs(rewards[best - 1]) else best
        assert told.column("sweep/best_checkpoint_step")[step - 1] == best
    kept = {int(p.name.rpartition("_")[2]) for p in tmp_path.glob("global_step_*")}
    assert kept == {best, 4, 5}
    assert json.loads((tmp_path / "sweep_best.json").read_text())["step"] == best
