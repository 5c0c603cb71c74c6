"""`HostedRuntime` over a real Ray host that runs a fake trainer: events, files, ends, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.adapters.ray_launcher import RayLauncher
from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.overrides import Overrides
from sweep.core.plan import Timeouts
from sweep.core.trial import Trial
from sweep.engines import hosted_runtime
from sweep.engines.hosted_runtime import METRICS_FILE, HostedRuntime
from sweep.engines.verl.commands import trial_command
from sweep.errors import EngineError
from sweep.fleet import Ended, Fleet, FleetEvent, Started, Stepped
from sweep.ports import Checkpoint, RuntimeEvent, RuntimeGone, RuntimeReady, TrialEnded
from tests.ray_cluster import eventually, free_resources

FAKE_TRAINER = str(Path(__file__).with_name("fake_trainer.py"))


def trial(how: str = "ok", seed: int = 0, steps: int = 5) -> Trial:
    return Trial(Overrides.of({"+fake": how}), seed, steps)


def command(trial: Trial, folder: Path) -> dict[str, object]:
    return trial_command(trial, folder, trial.overrides, ())


class FakeTrainerEngine:
    """A fake engine: real launcher, host and runtime, but the process is the fake trainer."""

    slots = 1

    def __init__(self, launcher: RayLauncher, *arguments: str) -> None:
        self.launcher = launcher
        self.arguments = arguments
        self.started: list[HostedRuntime] = []

    def checkpoint(self, trial: Trial, folder: Path) -> None:
        return None

    def adopt(self, folders: Mapping[Trial, Path]) -> dict[str, HostedRuntime]:
        return {}

    def start(
        self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None
    ) -> HostedRuntime:
        name = f"fake-{trial.id}-{time.monotonic_ns()}"
        host = self.launcher.launch(name, [FAKE_TRAINER, *self.arguments], {})
        runtime = HostedRuntime(
            host,
            trial,
            folder / f"runtime-{len(self.started)}.log",
            command=command,
            serves=lambda base, other: reuse,
        )
        self.started.append(runtime)
        return runtime

    def versions(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        for runtime in self.started:
            runtime.close()


@pytest.fixture(autouse=True)
def nothing_is_left(launcher: RayLauncher) -> Iterator[None]:
    launcher.open()
    before = free_resources()
    yield
    eventually(lambda: free_resources() == before, seconds=10.0)


def classify(log: str) -> Cause:
    return Cause(FailureClass.OOM_GPU if "CUDA out of memory" in log else FailureClass.UNKNOWN)


def play(engine: FakeTrainerEngine, folder: Path, *trials: Trial, limits: Timeouts | None = None) -> list[FleetEvent]:
    fleet = Fleet(engine, folder_of=lambda t: folder / t.id, classify=classify, timeouts=limits or Timeouts(60, 20, 5))
    for one in trials:
        fleet.submit(one)
    events: list[FleetEvent] = []
    try:
        while fleet._queue or fleet._busy():
            events += fleet.wait(1.0)
    finally:
        fleet.close()
    return events


def outcomes(events: list[FleetEvent]) -> list[Outcome]:
    return [e.outcome for e in events if isinstance(e, Ended)]


def test_one_process_serves_trials_cold_then_warm_each_with_its_own_metrics(
    launcher: RayLauncher, tmp_path: Path
) -> None:
    engine = FakeTrainerEngine(launcher)
    first, second = trial(seed=1), trial(seed=2, steps=3)
    events = play(engine, tmp_path, first, second)
    assert [type(o) for o in outcomes(events)] == [Finished, Finished]
    assert [e.warm for e in events if isinstance(e, Started)] == [False, True]
    assert len({e.metrics["pid"] for e in events if isinstance(e, Stepped)}) == 1
    for one in (first, second):
        lines = [json.loads(x) for x in (tmp_path / one.id / METRICS_FILE).read_text().splitlines()]
        assert [x["step"] for x in lines] == list(range(1, one.steps + 1))
        assert lines[-1]["data"]["critic/score/mean"] == pytest.approx(0.1 * one.steps)


def test_the_console_comes_home(launcher: RayLauncher, tmp_path: Path) -> None:
    engine = FakeTrainerEngine(launcher)
    play(engine, tmp_path, trial())
    assert "worker " in engine.started[0].log_path.read_text()


def test_a_trainer_that_dies_is_classified_by_its_console(launcher: RayLauncher, tmp_path: Path) -> None:
    (outcome,) = outcomes(play(FakeTrainerEngine(launcher), tmp_path, trial("die")))
    assert isinstance(outcome, Failed) and outcome.failure_class is FailureClass.OOM_GPU
    assert "exit code 1" in outcome.message and outcome.last_step == 2
    assert "OutOfMemoryError" in Path(outcome.log_path).read_text()


def test_exit_code_0_before_the_last_step_fails_the_trial(launcher: RayLauncher, tmp_path: Path) -> None:
    (outcome,) = outcomes(play(FakeTrainerEngine(launcher), tmp_path, trial("exit0")))
    assert isinstance(outcome, Failed)
    assert "step 2 of 5" in outcome.message and "exit code 0" in outcome.message


def test_a_trainer_that_dies_after_the_last_step_has_finished_its_trial(launcher: RayLauncher, tmp_path: Path) -> None:
    (outcome,) = outcomes(play(FakeTrainerEngine(launcher), tmp_path, trial("noisy")))
    assert isinstance(outcome, Finished)


def test_a_hung_step_is_ended_and_the_next_trial_gets_a_new_process(launcher: RayLauncher, tmp_path: Path) -> None:
    engine = FakeTrainerEngine(launcher)
    first, second = outcomes(play(engine, tmp_path, trial("hang"), trial(), limits=Timeouts(60, 3, 5)))
    assert isinstance(first, Failed) and first.failure_class is FailureClass.HANG
    assert isinstance(second, Finished) and len(engine.started) == 2


def test_a_start_that_hangs_is_ended(launcher: RayLauncher, tmp_path: Path) -> None:
    engine = FakeTrainerEngine(launcher, "never_ready")
    (outcome,) = outcomes(play(engine, tmp_path, trial(), limits=Timeouts(8, 60, 5)))
    assert isinstance(outcome, Failed) and outcome.failure_class is FailureClass.HANG
    assert "did not start within 8 s" in outcome.message


def test_a_failed_trial_that_leaves_verl_sound_is_followed_by_a_warm_one(launcher: RayLauncher, tmp_path: Path) -> None:
    engine = FakeTrainerEngine(launcher)
    first, second = outcomes(play(engine, tmp_path, trial("error"), trial()))
    assert isinstance(first, Failed) and "a bad error" in first.message
    assert isinstance(second, Finished) and len(engine.started) == 1


def test_a_killed_driver_is_noticed_and_its_trial_can_be_handed_over_again(
    launcher: RayLauncher, tmp_path: Path
) -> None:
    engine = FakeTrainerEngine(launcher)
    fleet = Fleet(engine, folder_of=lambda t: tmp_path / t.id, classify=classify, timeouts=Timeouts(60, 20, 5))
    fleet.submit(trial())
    fleet.submit(trial("slow", seed=1, steps=20))
    events: list[FleetEvent] = []
    killed = False
    while fleet._queue or fleet._busy():
        news = fleet.wait(1.0)
        events += news
        warm = [e for e in events if isinstance(e, Stepped) and e.trial.seed == 1]
        if warm and not killed:
            os.kill(int(warm[0].metrics["pid"]), signal.SIGKILL)
            killed = True
        if any(isinstance(e, Ended) and isinstance(e.outcome, Failed) for e in news):
            fleet.submit(warm[0].trial, resume=True)
    fleet.close()
    first, failed, again = outcomes(events)
    assert killed and isinstance(first, Finished) and isinstance(again, Finished)
    assert isinstance(failed, Failed) and failed.failure_class is FailureClass.ENV_FAULT
    assert [e.warm for e in events if isinstance(e, Started)] == [False, True, False]
    rows = [json.loads(x)["step"] for x in (tmp_path / trial("slow", 1, 20).id / METRICS_FILE).read_text().splitlines()]
    assert rows == list(range(1, 21))


def test_a_stopped_trial_ends_after_its_step_and_its_process_serves_on(launcher: RayLauncher, tmp_path: Path) -> None:
    engine = FakeTrainerEngine(launcher)
    fleet = Fleet(engine, folder_of=lambda t: tmp_path / t.id, classify=classify, timeouts=Timeouts(60, 20, 5))
    slow = trial("slow", steps=500)
    fleet.submit(slow)
    fleet.submit(trial())
    events: list[FleetEvent] = []
    while fleet._queue or fleet._busy():
        events += fleet.wait(1.0)
        if any(isinstance(e, Stepped) for e in events):
            fleet.stop(slow.id, "gradient norm exploded")
    fleet.close()
    first, second = outcomes(events)
    assert isinstance(first, Diverged) and first.reason == "gradient norm exploded"
    assert 1 <= first.curve.last_step < 20
    assert isinstance(second, Finished) and len(engine.started) == 1


def test_an_idle_trainer_is_asked_to_end_and_ends_with_exit_code_0(
    launcher: RayLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeTrainerEngine(launcher).start(trial(), tmp_path)
    runtime.submit(trial(), tmp_path / "t")
    seen = collect(runtime, TrialEnded)
    assert isinstance(seen[0], RuntimeReady)
    received: list[Mapping[str, Any]] = []
    receive = runtime._host.receive

    def recorded(seen: int, seconds: float) -> Sequence[Mapping[str, Any]]:
        found = receive(seen, seconds)
        received.extend(found)
        return found

    monkeypatch.setattr(runtime._host, "receive", recorded)
    monkeypatch.setattr(
        hosted_runtime, "END_SECONDS", 60.0
    )  # Ray's processes have the lowest priority of a busy machine
    runtime.close()
    assert [m["exit_code"] for m in received if m["type"] == "gone"] == [0]
    assert "Traceback" not in runtime.log_text()
    assert runtime.events(1.0) == () and not runtime.serves(trial())


def collect(runtime: HostedRuntime, until: type[RuntimeEvent]) -> list[RuntimeEvent]:
    """The events up to the first of this kind."""
    seen: list[RuntimeEvent] = []
    end = time.monotonic() + 60
    while not any(isinstance(e, until) for e in seen):
        assert time.monotonic() < end, seen
        seen += runtime.events(1.0)
    return seen


def test_gone_is_reported_once(launcher: RayLauncher, tmp_path: Path) -> None:
    runtime = FakeTrainerEngine(launcher).start(trial(), tmp_path)
    runtime.submit(trial("die"), tmp_path / "t")
    assert isinstance(collect(runtime, RuntimeGone)[-1], RuntimeGone)
    assert runtime.events(0.1) == ()
    runtime.close()


def test_a_message_of_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    from sweep.adapters.ray_host import RuntimeHost

    host = RuntimeHost("unknown-kind")
    host.name = "unknown-kind"  # type: ignore[attr-defined]
    runtime = HostedRuntime(
        host,  # type: ignore[arg-type]
        trial(),
        tmp_path / "log",
        command=command,
        serves=lambda a, b: True,
    )
    host.put({"type": "surprise"})
    with pytest.raises(EngineError, match="'surprise'; known: ready"):
        runtime.events(0.0)


def test_the_command_carries_what_verl_needs_for_the_trial() -> None:
    one = Trial(Overrides.of({"data.seed": 3, "a.path": 'it\'s {odd}, "very"'}), 3, 7)
    command = trial_command(one, Path("/runs/x"), one.overrides, ("b=1",))
    assert command == {
        "type": "trial",
        "id": one.id,
        "overrides": ["a.path='it\\'s {odd}, \"very\"'", "data.seed=3", "b=1"],
        "steps": 7,
        "folder": "/runs/x",
        "env": {"VERL_FILE_LOGGER_PATH": "/runs/x/verl.jsonl"},
    }
