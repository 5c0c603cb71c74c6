"""`RolloutEngine` on a fake cluster: leases, what the process is told, who serves whom, memory, and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sweep.core import verl_keys as keys
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.gpu_memory import GpuMemory
from sweep.engines.verl.engine import VerlEngine
from sweep.engines.verl.environment import Machine, gpu_engine
from sweep.engines.verl.settings import gpus_of
from sweep.engines.vllm.engine import CHILD, RolloutEngine
from sweep.errors import EngineError
from sweep.fleet import Ended, Fleet
from sweep.health.doctor import classify
from sweep.ports import DeviceMemory
from tests.engines.fake_launcher import FakeHost, FakeLauncher
from tests.engines.vllm.fake_vllm import OUT_OF_MEMORY
from tests.fakes import FakeClock

BASE = {
    keys.GPUS_PER_NODE: 2,
    keys.TENSOR_PARALLEL: 2,
    keys.TRAIN_BATCH: 8,
    "actor_rollout_ref.model.path": "/m",
    "data.train_files": "/d/train.parquet",
}


def trial(seed: int = 1, measure: Measure = Measure.ROLLOUT, **settings: object) -> Trial:
    return Trial(Overrides.of({**BASE, **settings}), seed, 3, measure)


class FakeMemory:
    """A fake probe: GiB in use on one GPU, the last reading for ever."""

    def __init__(self, *used_gib: float) -> None:
        self.left = list(used_gib)

    def __call__(self) -> Mapping[str, DeviceMemory]:
        used_gib = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return {"GPU-1": DeviceMemory(used_gib, 141.0 - used_gib)}


def engines(launcher: FakeLauncher, memory: FakeMemory | None = None) -> tuple[RolloutEngine, VerlEngine]:
    clock = FakeClock()
    training = VerlEngine(launcher, gpu_engine(Machine()))
    probe = GpuMemory(launcher, memory, sleep=clock.advance, clock=clock)
    rollout = RolloutEngine(
        launcher,
        slots=1,
        configuration=training.configuration,
        gpus_of=gpus_of,
        memory=probe,
        variables={"VLLM_USE_FLASHINFER_SAMPLER": "0"},
    )
    return rollout, training


def test_the_process_leases_the_gpus_of_one_replica_and_knows_its_point(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    runtime = engines(launcher)[0].start(trial(**{keys.MAX_SEQS: 99}), tmp_path / "t")
    ((arguments, environment),) = launcher.launched
    assert launcher.leased == [2]
    assert arguments[:2] == ("-m", CHILD)
    told = json.loads(arguments[2])
    assert (told["engine"]["max_num_seqs"], told["engine"]["seed"], told["sequences"]) == (99, 1, 8)
    assert environment["HF_HUB_OFFLINE"] == "1"  # the model is a local folder
    assert environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0" and float(environment["SWEEP_STARTED_AT"]) > 0
    runtime.submit(trial(), tmp_path / "t")
    assert launcher.hosts[0].commands == [{"type": "trial", "id": trial().id, "steps": 3}]


@pytest.mark.parametrize(
    ("other", "serves"),
    [
        (trial(seed=2), True),
        (trial(**{keys.MAX_SEQS: 99}), False),
        (trial(measure=Measure.TRAINING), False),
    ],
)
def test_a_process_serves_the_trials_of_its_point(tmp_path: Path, other: Trial, serves: bool) -> None:
    engine, _ = engines(FakeLauncher())
    assert engine.start(trial(), tmp_path).serves(other) is serves
    assert not engine.start(trial(), tmp_path, reuse=False).serves(other)


def test_a_verl_never_serves_a_trial_that_only_generates() -> None:
    _, training = engines(FakeLauncher())
    assert training.same_runtime(trial(measure=Measure.TRAINING), trial(seed=2, measure=Measure.TRAINING))
    assert not training.same_runtime(trial(measure=Measure.TRAINING), trial(seed=2))


def test_memory_is_looked_at_on_as_many_gpus_and_awaited_at_the_end(tmp_path: Path) -> None:
    launcher, memory = FakeLauncher(), FakeMemory(0.5, 90.0, 0.6)
    runtime = engines(launcher, memory)[0].start(trial(), tmp_path)
    assert launcher.gpus_called == [2]
    runtime.close()
    assert launcher.gpus_called == [2, 2, 2] and memory.left == [0.6]


def test_a_gpu_that_is_nearly_full_takes_no_trial(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"too little memory is free.* 4\.9 GiB on GPU-1"):
        engines(FakeLauncher(), FakeMemory(136.1))[0].start(trial(), tmp_path)


def test_memory_that_stays_taken_is_an_error(tmp_path: Path) -> None:
    runtime = engines(FakeLauncher(), FakeMemory(0.5, 90.0))[0].start(trial(), tmp_path)
    with pytest.raises(EngineError, match=r"90\.0 GiB on GPU-1"):
        runtime.close()


class PlayingLauncher(FakeLauncher):
    """A fake cluster whose process has said all that it will say when it is started."""

    def __init__(self, *messages: dict[str, object], console: str = "") -> None:
        super().__init__()
        self.messages, self.console = messages, console

    def launch(self, *arguments: object, **named: object) -> FakeHost:
        host = super().launch(*arguments, **named)  # type: ignore[arg-type]
        host.console = self.console.encode()
        for message in self.messages:
            host.say(**message)
        return host


def play(launcher: FakeLauncher, folder: Path) -> Finished | Failed:
    fleet = Fleet(engines(launcher)[0], folder_of=lambda t: folder / t.id, classify=classify)
    fleet.submit(trial())
    (ended,) = [e for e in fleet.wait(1.0) if isinstance(e, Ended)]
    fleet.close()
    assert launcher.hosts[0].closed
    return ended.outcome  # type: ignore[return-value]


READY = {"type": "ready", "startup_seconds": 60.0}
STARTED = {"type": "started", "id": trial().id, "reset_seconds": 0.0, "warm": False}
GONE = {"type": "gone", "exit_code": 1, "reason": ""}


def step(number: int) -> dict[str, object]:
    metrics = {"sweep/rollout_tokens_per_s": 100.0 * number, "sweep/free_gib_min": 8.0}
    return {"type": "step", "id": trial().id, "step": number, "metrics": metrics}


def test_rounds_become_the_curve_and_the_metrics_file(tmp_path: Path) -> None:
    ended = {"type": "ended", "id": trial().id, "last_step": 3, "error": "", "stopped_by": "", "reusable": True}
    outcome = play(PlayingLauncher(READY, STARTED, step(1), step(2), step(3), ended), tmp_path)
    assert isinstance(outcome, Finished)
    assert outcome.curve.rollout_tokens_per_s == (100.0, 200.0, 300.0) and outcome.curve.free_gib == (8.0, 8.0, 8.0)
    assert len((tmp_path / trial().id / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("before", [(), (READY, STARTED, step(1))], ids=["at the start", "in a round"])
def test_running_out_of_memory_is_classed_by_the_console(tmp_path: Path, before: tuple[dict[str, object], ...]) -> None:
    outcome = play(PlayingLauncher(*before, GONE, console=f"(EngineCore pid=2) {OUT_OF_MEMORY}\n"), tmp_path)
    assert isinstance(outcome, Failed) and outcome.failure_class is FailureClass.OOM_GPU
    assert outcome.last_step == max(0, len(before) - 2)


def test_a_warning_that_names_an_error_is_no_evidence(tmp_path: Path) -> None:
    warning = f"WARNING 11-30 14:46:09 [x.py:1] {OUT_OF_MEMORY}\n"
    broken = "ModuleNotFoundError: No module named 'vllm._C'\n"
    outcome = play(PlayingLauncher(GONE, console=warning + broken), tmp_path)
    assert isinstance(outcome, Failed) and outcome.failure_class is FailureClass.ENV_FAULT
