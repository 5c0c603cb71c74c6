"""What a campaign's preflight finds in a trial before anything is started."""

from __future__ import annotations

import pytest

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.environment import cpu_engine
from sweep.engines.verl.screening import Examined, examine
from sweep.health.preflight.limits import DEFAULT, PreflightLimits
from tests.engines.verl import small_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return small_world.settings(tmp_path_factory.mktemp("world"))


def seen(
    world: dict[str, object],
    swept: frozenset[str] = frozenset(),
    limits: PreflightLimits = DEFAULT,
    **more: object,
) -> Examined:
    trial = Trial(Overrides.of(world | {key.replace("__", "."): value for key, value in more.items()}), 1, 3)
    return examine(trial, "runs/x", cpu_engine(), lambda o: o, here=True, swept=swept, limits=limits)


def test_a_sound_configuration_has_no_obstacle(world: dict[str, object]) -> None:
    assert seen(world).obstacle == ""


def test_a_key_that_verl_does_not_read_is_a_warning_and_an_obstacle_where_it_is_searched(
    world: dict[str, object],
) -> None:
    dead = {"actor_rollout_ref__actor__grad_clip": 0.5}
    set_once = seen(world, **dead)
    assert set_once.obstacle == ""
    assert [w for w in set_once.warnings if "grad_clip has no effect" in w and "optim.clip_grad" in w]
    searched = seen(world, frozenset({"actor_rollout_ref.actor.grad_clip"}), **dead)
    assert "grad_clip has no effect" in searched.obstacle


def test_a_train_batch_off_the_lattice_is_a_warning_with_the_nearest_that_fit(world: dict[str, object]) -> None:
    off = seen(world, data__train_batch_size=32, actor_rollout_ref__actor__ppo_mini_batch_size=12)
    assert any("32 is not a multiple of" in w and "data.train_batch_size=36" in w for w in off.warnings)


def test_a_trial_is_judged_by_the_thresholds_that_were_given(world: dict[str, object]) -> None:
    def high(examined: Examined) -> list[str]:
        return [w for w in examined.warnings if "gpu_memory_utilization" in w]

    assert high(seen(world)) == []
    assert len(high(seen(world, limits=PreflightLimits(gpu_memory_utilization=0.1)))) == 1


def test_a_coefficient_is_an_obstacle_without_its_term_where_it_is_searched(world: dict[str, object]) -> None:
    bare = {k: v for k, v in world.items() if not k.startswith("algorithm.kl_ctrl")} | {
        "algorithm.use_kl_in_reward": False
    }
    assert "use_kl_in_reward" in seen(bare, frozenset({"algorithm.kl_ctrl.kl_coef"})).obstacle
