"""What the plug-ins do in real training, seen in the metrics of trials in the warm verl."""

from __future__ import annotations

import math

import pytest

from tests.engines.verl.live_verl import LiveVerl, Told

pytestmark = pytest.mark.verl


@pytest.fixture(scope="module")
def long_run(warm_verl: LiveVerl, world: dict[str, object]) -> Told:
    """The first 7 steps of a 100-step cosine, with a controller whose band lies above any KL of the first steps."""
    settings = {
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "actor_rollout_ref.actor.optim.lr_scheduler_type": "cosine",
        "actor_rollout_ref.actor.optim.lr_warmup_steps": 3,
        "actor_rollout_ref.actor.optim.clip_grad": 2.0,
        "algorithm.kl_ctrl.type": "band",
        "algorithm.kl_ctrl.kl_coef": 0.001,
        "+algorithm.kl_ctrl.band_interval": 2,
        "+algorithm.kl_ctrl.band_low": 50.0,
        "+algorithm.kl_ctrl.band_high": 100.0,
        "+sweep.schedule_steps": 100,
        "+sweep.clip_decay": 0.9,
        "+sweep.clip_floor": 0.6,
    }
    return warm_verl.run(world | settings, seed=5, steps=7)


def test_the_trial_ends_at_its_budget_although_the_schedule_goes_on(long_run: Told) -> None:
    assert long_run.one("ended")["last_step"] == 7
    assert len(long_run.steps) == 7


def test_the_learning_rate_follows_the_schedule_of_the_whole_run(long_run: Told) -> None:
    # verl logs the next step's rate: after step s the schedule stands at s.
    cosine = [0.5 * (1 + math.cos(math.pi * (step - 3) / (100 - 3))) for step in range(3, 8)]
    expected = [1e-3 / 3, 2e-3 / 3, *(1e-3 * factor for factor in cosine)]
    assert long_run.column("actor/lr") == pytest.approx(expected, rel=1e-6)


def test_the_band_controller_lowers_the_coefficient_each_interval_and_logs_each_change(long_run: Told) -> None:
    used = long_run.column("actor/reward_kl_penalty_coeff")
    assert used == pytest.approx([0.001, 0.001, 0.0008, 0.0008, 0.00064, 0.00064, 0.000512])
    changes = long_run.column("sweep/kl_coef_change")
    assert changes == pytest.approx([0.0, -0.0002, 0.0, -0.00016, 0.0, -0.000128, 0.0])


def test_the_clipping_threshold_falls_to_its_floor(long_run: Told) -> None:
    assert long_run.column("sweep/clip_norm") == pytest.approx([2.0, 1.8, 1.62, 1.458, 1.3122, 1.2, 1.2])


def test_the_rollout_serves_the_weights_that_were_just_trained(long_run: Told) -> None:
    probe = long_run.one("probe")
    trained = probe["weights"]["actor"]
    assert len(probe["served"]) > 20
    assert probe["served"] == {name: trained[name] for name in probe["served"]}
    assert trained != probe["weights"]["reference"]


def test_throughput_is_logged_for_every_step(long_run: Told) -> None:
    for metric in ("sweep/rollout_tokens_per_s", "sweep/rollout_server_tokens_per_s"):
        assert all(value > 0 for value in long_run.column(metric))
    assert max(long_run.column("sweep/rollout_most_running")) == 8.0  # fewer where requests arrive one by one


def test_gradients_clipped_to_nothing_leave_the_weights_where_they_were(
    warm_verl: LiveVerl, world: dict[str, object]
) -> None:
    frozen = {
        "+sweep.clip_decay": 0.0,
        "+sweep.clip_floor": 0.0,
        "actor_rollout_ref.actor.optim.clip_grad": 1.0,
        "actor_rollout_ref.actor.optim.weight_decay": 0.0,
        "actor_rollout_ref.actor.optim.betas": [0.0, 0.0],
        "actor_rollout_ref.actor.optim.lr_warmup_steps": 1,  # the first step, which is clipped at the start value
        "critic.optim.weight_decay": 0.0,
    }
    told = warm_verl.run(world | frozen, seed=5, steps=2)
    start = warm_verl.run(world | frozen, seed=6, steps=1)
    probe = told.one("probe")["weights"]
    assert probe["actor"] == start.one("probe")["weights"]["actor"] == probe["reference"]


@pytest.mark.parametrize(("seqs", "tokens", "running"), [(1, 512, {1}), (2, 512, {2}), (8, 64, set(range(3, 9)))])
def test_both_limits_of_the_rollout_take_effect_in_a_running_verl(
    warm_verl: LiveVerl, world: dict[str, object], seqs: int, tokens: int, running: set[int]
) -> None:
    """Whether all eight prompts of a step are there before the first is answered depends on the machine's load."""
    limits = {
        "actor_rollout_ref.rollout.max_num_seqs": seqs,
        "actor_rollout_ref.rollout.max_num_batched_tokens": tokens,
    }
    told = warm_verl.run(world | limits, seed=5, steps=1)
    assert set(told.column("sweep/rollout_most_running")) <= running
    assert told.column("sweep/rollout_most_tokens")[0] <= tokens


def test_another_seed_gives_other_prompts_another_critic_and_other_responses(
    warm_verl: LiveVerl, world: dict[str, object]
) -> None:
    first, second, again = (warm_verl.run(world, seed=seed, steps=1) for seed in (11, 12, 11))
    for metric in ("global_seqlen/mean", "critic/values/mean", "critic/score/mean"):
        assert first.column(metric) == again.column(metric) != second.column(metric)


def test_memory_does_not_grow_over_twenty_trials(warm_verl: LiveVerl, world: dict[str, object]) -> None:
    def resident_mib() -> float:
        return sum(warm_verl.run(world, seed=1, steps=1).one("probe")["memory_mib"].values())

    sizes = [resident_mib() for _ in range(20)]
    assert sizes[-1] < 1.02 * sizes[0], sizes
