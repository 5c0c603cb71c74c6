"""`RolloutEngine` on a real Ray cluster of logical GPUs, its process real, the vLLM in it a fake."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sweep.adapters.ray_host import MAILBOX_VARIABLE
from sweep.adapters.ray_launcher import RayLauncher
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.gpu_memory import GpuMemory
from sweep.engines.vllm.engine import RolloutEngine
from sweep.fleet import Ended, Fleet, FleetEvent, Started, Stepped
from sweep.health.doctor import classify
from tests.engines.vllm.fake_vllm import write_fake_vllm
from tests.ray_cluster import eventually, free_gpus

ROLLOUT = "actor_rollout_ref.rollout."


def trial(budget: int, seed: int = 1, rounds: int = 2) -> Trial:
    return Trial(Overrides.of({f"{ROLLOUT}max_num_batched_tokens": budget}), seed, rounds, Measure.ROLLOUT)


def engine(launcher: RayLauncher, folder: Path) -> RolloutEngine:
    file = folder / "train.jsonl"
    file.write_text(json.dumps({"prompt": [{"role": "user", "content": "a bb"}]}) + "\n")
    fixed: dict[str, object] = {
        "actor_rollout_ref.model.path": "/m",
        "data.train_files": str(file),
        "data.train_batch_size": 4,
        f"{ROLLOUT}tensor_model_parallel_size": 1,
        f"{ROLLOUT}response_length": 20,
    }
    paths = [str(write_fake_vllm(folder / "fake")), os.environ.get("PYTHONPATH", "")]
    return RolloutEngine(
        launcher,
        slots=1,
        configuration=lambda one: {**fixed, **dict(one.overrides), f"{ROLLOUT}seed": one.seed},
        gpus_of=lambda one: 1,
        memory=GpuMemory(launcher, None),
        variables={"PYTHONPATH": os.pathsep.join(paths)},
    )


def processes(name: str) -> list[str]:
    """Those that carry the mailbox of this name."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{MAILBOX_VARIABLE}={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue
    return found


def test_points_have_a_process_each_with_leased_gpus_and_seeds_share_one(launcher: RayLauncher, tmp_path: Path) -> None:
    launcher.open()
    before, measured = free_gpus(), engine(launcher, tmp_path)
    fleet = Fleet(measured, folder_of=lambda t: tmp_path / t.id, classify=classify)
    trials = [trial(50), trial(50, seed=2), trial(101), trial(80)]
    for one in trials:
        fleet.submit(one)
    events: list[FleetEvent] = []
    leased: set[float] = set()
    while fleet._queue or fleet._busy():
        news = fleet.wait(1.0)
        leased |= {before - free_gpus() for e in news if isinstance(e, Stepped)}
        events += news
    names = [runtime.name for runtime in measured._runtimes]
    fleet.close()
    ends = {e.trial: e.outcome for e in events if isinstance(e, Ended)}
    assert [e.warm for e in events if isinstance(e, Started)] == [False, True, False]
    assert len(names) == 3 and leased == {1.0}
    for one in (trials[0], trials[1], trials[3]):
        outcome = ends[one]
        assert isinstance(outcome, Finished) and outcome.curve.steps == (1, 2), outcome
        assert min(outcome.curve.rollout_tokens_per_s) > 0 and outcome.curve.response_tokens == (10.0, 10.0)
    died = ends[trials[2]]
    assert isinstance(died, Failed) and died.failure_class is FailureClass.OOM_GPU
    assert "CUDA out of memory" in died.message
    console = (tmp_path / trials[0].id / "runtime.log").read_text()
    assert "devices: " in console and "devices: None" not in console and "round 2: " in console
    assert all(processes(name) == [] for name in names)
    eventually(lambda: free_gpus() == before, seconds=10.0)
