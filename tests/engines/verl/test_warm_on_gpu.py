"""A warm trial on a GPU starts where a cold one does: real vLLM, real FSDP. Skips aloud elsewhere.

`SWEEP_GPU_MODEL` names the folder of a real chat model. vLLM compiles nothing here, so that the start is short. Run it
in a pytest of its own: it opens a Ray cluster with GPUs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters import nvml_probe
from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
from sweep.engines.verl.environment import gpu_engine, inspect
from sweep.engines.verl.plugins.fixed_batch import TOLERANCE
from tests.engines.verl import small_world
from tests.engines.verl.live_verl import LiveVerl, Told

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS = 3
LONGEST_START_SECONDS = 10.0
"""From a warm trial's submission to its first step: the target on one H200."""
TRIAL: dict[str, object] = {
    "actor_rollout_ref.actor.optim.lr": 2e-5,
    "actor_rollout_ref.actor.optim.lr_warmup_steps": 2,
}
OTHER: dict[str, object] = {
    "actor_rollout_ref.actor.optim.lr": 1e-4,
    "critic.optim.lr": 1e-3,
    "data.train_batch_size": 16,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
    "algorithm.lam": 0.9,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, Told, list[list[str]]]]:
    """The same trial before and after another in one verl, and the prompts that each step of both trained on."""
    reading = nvml_probe.read()
    if not reading.devices:
        pytest.skip(f"no GPU: {reading.problem}")
    model = os.environ.get("SWEEP_GPU_MODEL")
    if not model:
        pytest.skip("SWEEP_GPU_MODEL names no model")
    folder: Path = tmp_path_factory.mktemp("gpu")
    world = small_world.settings(folder) | {
        "actor_rollout_ref.model.path": model,
        "critic.model.path": model,
        "data.max_prompt_length": 128,
        "actor_rollout_ref.rollout.enforce_eager": True,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.2,
    }
    launcher = RayLauncher(ClusterSettings())
    verl = LiveVerl(launcher, folder, world, reuse=True, seed=1, steps=STEPS, engine=gpu_engine(inspect()))
    try:
        verl.ready()
        dumps = [folder / name for name in ("first", "again")]
        mine = [world | TRIAL | {"trainer.rollout_data_dir": str(dump)} for dump in dumps]
        first = verl.run(mine[0], seed=7, steps=STEPS)
        verl.run(world | OTHER, seed=3, steps=2)
        again = verl.run(mine[1], seed=7, steps=STEPS)
        yield first, again, [prompts(dump) for dump in dumps]
    finally:
        verl.close()
        launcher.close()


def prompts(dump: Path) -> list[str]:
    """Of all steps in order; within a step sorted, since verl writes samples as they come."""
    found: list[str] = []
    for step in range(1, STEPS + 1):
        lines = (dump / f"{step}.jsonl").read_text(encoding="utf-8").splitlines()
        found += sorted(json.loads(line)["input"] for line in lines)
    return found


def test_both_runs_of_the_trial_reach_their_end(told: tuple[Told, Told, list[list[str]]]) -> None:
    for one in told[:2]:
        ended = one.one("ended")
        assert (ended["last_step"], ended["error"]) == (STEPS, "")


def test_values_and_log_probabilities_of_a_fixed_batch_are_the_start_s(
    told: tuple[Told, Told, list[list[str]]],
) -> None:
    gaps = told[1].one("started")["fixed_batch"]
    assert set(gaps) == {"actor", "reference", "critic"}
    assert max(gaps.values()) <= TOLERANCE


def test_learning_rates_and_prompts_are_the_same_again(told: tuple[Told, Told, list[list[str]]]) -> None:
    first, again, (before, after) = told
    for metric in ("actor/lr", "critic/lr"):
        assert first.column(metric) == again.column(metric)
    assert len(before) == 8 * STEPS and before == after


def test_a_warm_start_takes_seconds(told: tuple[Told, Told, list[list[str]]]) -> None:
    again = told[1]
    start = again.one("started")["reset_seconds"] + again.column("timing_s/step")[0]
    print(f"reset {again.one('started')['reset_seconds']:.2f} s, first step {again.column('timing_s/step')[0]:.2f} s")
    assert again.one("started")["warm"] is True
    assert start <= LONGEST_START_SECONDS
