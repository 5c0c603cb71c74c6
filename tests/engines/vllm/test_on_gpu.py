"""Real vLLM on a real GPU: the pressure check and the probe. Skips aloud elsewhere.

`SWEEP_GPU_MODEL` names a model's folder; without it the generated tiny model is used.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.adapters import nvml_probe
from sweep.adapters.gpu_reading import NvmlReader
from sweep.core.failure import FailureClass
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.vllm.probe import Probed, ProbeFailed, ProbePoint, ProbeSettings, probe
from sweep.engines.vllm.workload import Workload
from sweep.health.doctor import classify

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]

IDLE_GIB = 2.0
"""Memory that an idle GPU may hold."""


@pytest.fixture(scope="module", autouse=True)
def gpu() -> nvml_probe.Device:
    reading = nvml_probe.read()
    if not reading.devices:
        pytest.skip(f"no GPU: {reading.problem}")
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    return next(d for d in reading.devices if d.uuid == mine())


def mine() -> str:
    """UUID of the first GPU that `CUDA_VISIBLE_DEVICES` leaves these tests: others may be somebody else's."""
    return next(iter(nvml_probe.leased_memory()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("SWEEP_GPU_MODEL")
    if given:
        return Path(given)
    from sweep.tasks.tiny_model import make

    return make(tmp_path_factory.mktemp("assets"))


def used_gib() -> float:
    return nvml_probe.leased_memory()[mine()].used_gib


def is_given_back(before_gib: float) -> bool:
    """Whether the memory comes free within the seconds that the driver takes for a process that has ended."""
    until = time.monotonic() + 15.0
    while used_gib() > before_gib + IDLE_GIB and time.monotonic() < until:
        time.sleep(0.2)
    return used_gib() <= before_gib + IDLE_GIB


def test_the_pressure_check_passes_with_room_and_gives_the_memory_back(model: Path) -> None:
    before = used_gib()
    arguments = [f"model={model}", "--gpu-memory-utilization", "0.3", "--max-num-seqs", "64", "--json"]
    done = subprocess.run([sys.executable, "-m", "sweep.pressure", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    (check,) = found["checks"]
    assert (check["most_at_once"], check["complete"]) == (10, check["sent"])
    assert check["lowest_free_gib"] > 5 and check["tokens_per_s"] > 100
    assert is_given_back(before)


def test_the_pressure_check_fails_where_nearly_all_memory_is_taken(model: Path, gpu: nvml_probe.Device) -> None:
    share = str(round(1 - 4.0 / gpu.total_gib, 3))  # 4 GiB stay free, and five are wanted
    arguments = [f"model={model}", "--gpu-memory-utilization", share, "--max-num-seqs", "64", "--json"]
    done = subprocess.run([sys.executable, "-m", "sweep.pressure", *arguments], capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] in ("LOW_MEMORY", "OUT_OF_MEMORY", "DOES_NOT_START")


def test_the_probe_measures_a_point_and_gives_the_memory_back(model: Path, tmp_path: Path) -> None:
    before = used_gib()
    settings = ProbeSettings(str(model), Workload(64, 64, 64), rounds=2, warmup_rounds=1)
    found = probe(ProbePoint(2048, 64, 0.3), settings, classify, tmp_path / "console")
    assert isinstance(found, Probed), found
    assert found.tokens_per_s > 100 and found.kv_cache_tokens > 64 * 128
    assert found.peak_reserved_gib and found.free_gib and found.free_gib > 5
    assert is_given_back(before)


def test_a_point_that_does_not_fit_is_a_classed_failure(model: Path, tmp_path: Path) -> None:
    settings = ProbeSettings(str(model), Workload(4, 16, 8), rounds=1, warmup_rounds=1, enforce_eager=True)
    found = probe(ProbePoint(2048, 64, 0.001), settings, classify, tmp_path / "console")
    assert isinstance(found, ProbeFailed), found
    assert found.failure.failure_class in (FailureClass.INFEASIBLE_CONFIG, FailureClass.OOM_GPU)


def test_a_stages_trials_are_measured_on_a_cluster_and_the_memory_is_given_back(model: Path, tmp_path: Path) -> None:
    from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
    from sweep.core.outcome import Failed, Finished
    from sweep.engines.gpu_memory import GpuMemory
    from sweep.engines.verl.engine import VerlEngine
    from sweep.engines.verl.environment import gpu_engine, inspect
    from sweep.engines.verl.settings import gpus_of
    from sweep.engines.vllm.engine import RolloutEngine
    from sweep.fleet import Ended, Fleet
    from sweep.tasks import arithmetic

    rollout = "actor_rollout_ref.rollout."
    base = {
        "actor_rollout_ref.model.path": str(model),
        "data.train_files": str(arithmetic.make(tmp_path).train),
        "data.train_batch_size": 128,
        "data.max_response_length": 64,
        "trainer.n_gpus_per_node": 1,
        f"{rollout}tensor_model_parallel_size": 1,
        f"{rollout}max_num_batched_tokens": 2048,
        f"{rollout}max_num_seqs": 64,
    }
    fits = Trial(Overrides.of({**base, f"{rollout}gpu_memory_utilization": 0.3}), 1, 3, Measure.ROLLOUT)
    does_not = Trial(Overrides.of({**base, f"{rollout}gpu_memory_utilization": 0.001}), 1, 3, Measure.ROLLOUT)
    before = used_gib()
    launcher, settings = RayLauncher(ClusterSettings()), gpu_engine(inspect())
    training = VerlEngine(launcher, settings)
    memory = GpuMemory(launcher, nvml_probe.leased_memory)
    engine = RolloutEngine(
        launcher,
        slots=1,
        configuration=training.configuration,
        gpus_of=gpus_of,
        memory=memory,
        variables=settings.variables,
    )
    fleet = Fleet(engine, folder_of=lambda t: tmp_path / t.id, classify=classify)
    for one in (fits, does_not):
        fleet.submit(one)
    ends: dict[Trial, object] = {}
    while len(ends) < 2:
        ends |= {e.trial: e.outcome for e in fleet.wait(5.0) if isinstance(e, Ended)}
    fleet.close()
    training.close()
    good, bad = ends[fits], ends[does_not]
    assert isinstance(good, Finished), good
    assert min(good.curve.rollout_tokens_per_s) > 100 and good.curve.preemptions == (0.0, 0.0, 0.0)
    assert min(good.curve.free_gib) > 5 and max(good.curve.response_tokens) <= 64
    assert isinstance(bad, Failed), bad
    assert bad.failure_class in (FailureClass.INFEASIBLE_CONFIG, FailureClass.OOM_GPU), bad
    assert is_given_back(before)
    print(good.curve.rollout_tokens_per_s, good.wall_seconds)


def test_nvml_reports_what_the_watch_records() -> None:
    reader = NvmlReader()
    first, *_ = reader()
    reader.close()
    assert first.total_gib and first.free_gib and first.uuid and first.utilisation_pct is not None
    assert first.power_watts and reader.problem == ""
    print(first)
