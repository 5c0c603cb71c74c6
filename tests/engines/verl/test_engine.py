"""`VerlEngine`: what it asks of a cluster, which trials share a runtime, and real verl on the CPU."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import ports
from sweep.adapters.ray_host import MAILBOX_VARIABLE
from sweep.adapters.ray_launcher import RayLauncher
from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.overrides import Overrides
from sweep.core.plan import Timeouts
from sweep.core.trial import Trial
from sweep.engines.gpu_memory import LINGERING_GIB
from sweep.engines.hosted_runtime import HostedRuntime
from sweep.engines.verl.engine import VerlEngine
from sweep.engines.verl.environment import Machine, cpu_engine, gpu_engine
from sweep.errors import ConfigError, EngineError
from sweep.fleet import Ended, Fleet, FleetEvent, Started, Stepped
from sweep.ports import Checkpoint, DeviceMemory
from tests.engines.fake_launcher import FakeHost, FakeLauncher
from tests.engines.verl.live_verl import MEASURED
from tests.fakes import FakeClock
from tests.ray_cluster import eventually, free_resources

GPU = gpu_engine(Machine())


def trial(seed: int = 1, steps: int = 5, **settings: object) -> Trial:
    return Trial(Overrides.of({"trainer.n_gpus_per_node": 1, **settings}), seed, steps)


@pytest.mark.parametrize(
    ("resources", "missing"),
    [
        ({"CPU": 10, "GPU": 1}, ""),
        ({"CPU": 9, "GPU": 1}, "10 CPUs (10 each), but the Ray cluster has 9"),
        ({"CPU": 10}, "1 GPUs (1 each), but the Ray cluster has 0"),
    ],
)
def test_a_cluster_on_which_verl_would_wait_for_ever_is_refused_with_what_was_found(
    resources: dict[str, float], missing: str
) -> None:
    engine = VerlEngine(FakeLauncher(**resources), GPU)
    if not missing:
        engine.check(trial())
        return
    with pytest.raises(ConfigError) as refused:
        engine.check(trial())
    assert missing in str(refused.value)


def test_every_slot_counts_in_what_the_cluster_must_have() -> None:
    engine = VerlEngine(FakeLauncher(CPU=19, GPU=2), gpu_engine(Machine(), slots=2))
    with pytest.raises(ConfigError, match="2 verl at once need 20 CPUs"):
        engine.check(trial())


def test_a_refused_trial_starts_nothing(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=1, GPU=1)
    with pytest.raises(ConfigError):
        VerlEngine(launcher, GPU).start(trial(), tmp_path)
    assert launcher.hosts == []


def test_verls_processes_get_the_mailbox_and_the_plug_ins_by_their_environment(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    VerlEngine(launcher, cpu_engine()).start(trial(), tmp_path / "t")
    ((arguments, environment),) = launcher.launched
    in_workers = [a.split("env_vars.")[1] for a in arguments if "env_vars." in a]
    assert f"{MAILBOX_VARIABLE}='{launcher.hosts[0].name}'" in in_workers
    assert "VERL_PLATFORM='cpu'" in in_workers and environment["VERL_PLATFORM"] == "cpu"
    assert environment["VERL_USE_EXTERNAL_MODULES"] == "sweep.engines.verl.plugins"


def test_a_trial_handed_over_later_is_complete_and_its_marks_are_paths(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    paths = {"asset:train": "/data/train.parquet"}
    engine = VerlEngine(
        launcher,
        cpu_engine(),
        locate=lambda o: Overrides.of([(k, paths.get(v, v) if isinstance(v, str) else v) for k, v in o]),
    )
    one = trial(**{"data.train_files": "asset:train"})
    runtime = engine.start(one, tmp_path / "a")
    runtime.submit(one, tmp_path / "b")
    (command,) = launcher.hosts[0].commands
    assert "data.train_files='/data/train.parquet'" in command["overrides"]
    assert f"trainer.default_local_dir='{tmp_path}/b/checkpoints'" in command["overrides"]
    started = {a for a in launcher.launched[0][0] if "env_vars." in a}
    assert started <= set(command["overrides"])


def test_a_runtime_without_reuse_is_told_nothing_and_serves_nobody_else(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    runtime = VerlEngine(launcher, cpu_engine()).start(trial(), tmp_path, reuse=False)
    runtime.submit(trial(), tmp_path)
    assert launcher.hosts[0].commands == []
    assert not runtime.serves(trial(seed=2))
    assert "+sweep.reuse=false" in launcher.launched[0][0]


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"actor_rollout_ref.actor.optim.lr": 1e-5}, True),
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 64}, True),
        ({"algorithm.lam": 0.9}, True),
        ({"algorithm.kl_ctrl.type": "band", "+algorithm.kl_ctrl.band_low": 0.1}, True),
        ({"actor_rollout_ref.rollout.gpu_memory_utilization": 0.6}, False),
        ({"data.max_response_length": 64}, False),
        ({"algorithm.use_kl_in_reward": True}, False),
    ],
)
def test_trials_share_a_runtime_if_what_differs_can_be_changed_warm(changed: dict[str, object], same: bool) -> None:
    engine = VerlEngine(FakeLauncher(), cpu_engine())
    assert engine.same_runtime(trial(seed=1), trial(seed=2, **changed)) is same


def test_the_rollouts_limits_are_warm_on_the_cpu_and_cold_in_vllm() -> None:
    wider = trial(**{"actor_rollout_ref.rollout.max_num_seqs": 512})
    assert VerlEngine(FakeLauncher(), cpu_engine()).same_runtime(trial(), wider)
    assert not VerlEngine(FakeLauncher(), GPU).same_runtime(trial(), wider)


def test_a_trial_that_does_not_compose_gets_a_runtime_of_its_own() -> None:
    engine = VerlEngine(FakeLauncher(), cpu_engine())
    assert not engine.same_runtime(trial(), trial(**{"algorithm.lambda": 0.9}))


class FakeMemory:
    """A fake probe: the readings of one GPU, one after the other, the last for ever."""

    def __init__(self, *used_gib: float) -> None:
        self.left = list(used_gib)

    def __call__(self) -> dict[str, DeviceMemory]:
        used_gib = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return {"GPU-1": DeviceMemory(used_gib, 80.0 - used_gib)}


def closing(memory: FakeMemory, folder: Path) -> tuple[HostedRuntime, FakeClock]:
    clock = FakeClock()
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, GPU, memory_probe=memory, sleep=clock.advance, clock=clock)
    return engine.start(trial(), folder), clock


def test_closing_waits_until_the_memory_is_as_free_as_before(tmp_path: Path) -> None:
    runtime, clock = closing(FakeMemory(0.5, 70.0, 30.0, 0.5 + LINGERING_GIB), tmp_path)
    runtime.close()
    assert clock() == 2.0


def test_memory_that_somebody_else_held_before_is_not_waited_for(tmp_path: Path) -> None:
    runtime, clock = closing(FakeMemory(40.0, 40.5), tmp_path)
    runtime.close()
    assert clock() == 0.0


def test_memory_that_is_never_given_back_is_an_error_with_the_amount_and_the_log(tmp_path: Path) -> None:
    runtime, clock = closing(FakeMemory(0.5, 0.51 + LINGERING_GIB), tmp_path)
    with pytest.raises(EngineError, match=r"1\.5 GiB on GPU-1.*runtime\.log"):
        runtime.close()
    assert clock() == 60.0


@pytest.mark.parametrize(
    ("used_gib", "settings", "starts"),
    [
        (75.0, {}, True),
        (75.1, {}, False),
        (75.1, {"+sweep.min_free_gib": 4.8}, True),
        (60.0, {"+sweep.min_free_gib": 30.0}, False),
    ],
)
def test_no_trial_starts_on_a_gpu_that_is_nearly_full(
    tmp_path: Path, used_gib: float, settings: dict[str, object], starts: bool
) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, GPU, memory_probe=FakeMemory(used_gib))
    if starts:
        engine.start(trial(**settings), tmp_path)
        return
    with pytest.raises(EngineError, match=r"too little memory is free.*GiB on GPU-1"):
        engine.start(trial(**settings), tmp_path)


def test_memory_is_looked_at_on_the_gpus_of_one_node_since_no_lease_spans_two(tmp_path: Path) -> None:
    launcher = FakeLauncher({"CPU": 64, "GPU": 4}, {"CPU": 64, "GPU": 4})
    engine = VerlEngine(launcher, GPU, memory_probe=FakeMemory(1.0))
    engine.start(trial(**{"trainer.n_gpus_per_node": 4, "trainer.nnodes": 2}), tmp_path)
    assert launcher.gpus_called == [4]


def test_on_the_cpu_no_memory_is_asked_for(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, cpu_engine(), memory_probe=FakeMemory(1.0))
    engine.start(trial(), tmp_path).close()
    assert launcher.gpus_called == []


def test_each_runtime_in_a_folder_has_a_log_of_its_own(tmp_path: Path) -> None:
    engine = VerlEngine(FakeLauncher(CPU=16, GPU=1), cpu_engine())
    for _ in range(3):
        engine.start(trial(), tmp_path).close()
    assert sorted(p.name for p in tmp_path.glob("*.log")) == ["runtime-2.log", "runtime-3.log", "runtime.log"]


def test_closing_the_engine_closes_its_runtimes_and_the_cluster(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, cpu_engine())
    engine.start(trial(), tmp_path)
    engine.close()
    engine.close()
    assert launcher.hosts[0].closed and launcher.closed


# Real verl.


class KeptOpen:
    """The session's launcher for an engine that closes its own: a process can have one Ray cluster only."""

    def __init__(self, launcher: RayLauncher) -> None:
        self.nodes, self.left = launcher.nodes, launcher.left
        self.launch, self.call = launcher.launch, launcher.call

    def close(self) -> None:
        """The session ends it."""


def tagged(name: str) -> dict[int, str]:
    """Process id to command of everything that carries the mailbox of this name."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{MAILBOX_VARIABLE}={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.fixture
def real(launcher: RayLauncher) -> Iterator[VerlEngine]:
    """Real verl on the session's cluster; what it takes of it, it gives back."""
    launcher.open()
    before = free_resources()
    engine = VerlEngine(KeptOpen(launcher), cpu_engine())
    yield engine
    engine.close()
    eventually(lambda: free_resources() == before, seconds=10.0)


SAVING = {
    "trainer.save_freq": 1,
    "+sweep.keep_last": 2,
    "+sweep.schedule_steps": 100,
    "algorithm.kl_ctrl.type": "band",
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "+algorithm.kl_ctrl.band_interval": 2,
    "+algorithm.kl_ctrl.band_low": 50.0,  # KL is always under it, so that the controller moves every two steps
    "+algorithm.kl_ctrl.band_high": 100.0,
    "actor_rollout_ref.rollout.max_num_seqs": 1,  # so that rounding cannot depend on which requests share a batch
}


@pytest.mark.verl
def test_real_verl_serves_a_cold_a_stopped_and_a_warm_trial_which_goes_on_from_its_last_whole_checkpoint_when_killed(
    tmp_path: Path, real: VerlEngine, world: dict[str, object]
) -> None:
    """The KL controller goes on with it: its coefficient is among the numbers that are the undisturbed trial's."""
    engine, base = real, Overrides.of(world | SAVING)
    assert engine.versions()["verl"] == "0.9.1"
    whole, stopped, killed = Trial(base, 3, 8), Trial(base, 2, 200), Trial(base, 3, 12)
    fleet = Fleet(
        engine,
        folder_of=lambda t: tmp_path / t.id,
        classify=lambda log: Cause(FailureClass.UNKNOWN, log[-500:]),
        timeouts=Timeouts(900, 300, 120),
    )
    for one in (whole, stopped, killed):
        fleet.submit(one)
    events: list[FleetEvent] = []
    while fleet._queue or fleet._busy():
        for event in fleet.wait(5.0):
            events.append(event)
            if isinstance(event, Stepped) and event.trial == stopped and event.step == 2:
                fleet.stop(stopped.id, "the test says so")
            if isinstance(event, Stepped) and event.trial == killed and event.step == 3 and len(engine._runtimes) == 1:
                drivers = [p for p, c in tagged(engine._runtimes[0].name).items() if "verl.trainer.main_ppo" in c]
                assert len(drivers) == 1
                os.kill(drivers[0], signal.SIGKILL)
            if isinstance(event, Ended) and isinstance(event.outcome, Failed):
                assert event.outcome.failure_class is FailureClass.ENV_FAULT
                damaged = truncated(engine.checkpoint(event.trial, tmp_path / event.trial.id))
                saved = engine.checkpoint(event.trial, tmp_path / event.trial.id)
                fleet.submit(event.trial, resume=True)
    fleet.close()
    names = {r.name for r in engine._runtimes}
    assert all(tagged(name) == {} for name in names)
    ends = [(e.trial, type(e.outcome)) for e in events if isinstance(e, Ended)]
    assert ends == [(whole, Finished), (stopped, Diverged), (killed, Failed), (killed, Finished)]
    warm = [(e.trial, e.warm) for e in events if isinstance(e, Started)]
    assert warm == [(whole, False), (stopped, True), (killed, True), (killed, False)]
    assert len(names) == 2 and saved is not None and 1 <= saved.step < damaged.step
    went_on = [e for e in events[_last_start(events, killed) :] if isinstance(e, Stepped)]
    assert [e.step for e in went_on] == list(range(1, 13))
    undisturbed = [e for e in events if isinstance(e, Stepped) and e.trial == whole]
    assert [done(e) for e in went_on[:8]] == [done(e) for e in undisturbed], "a resumed trial is not the same trial"
    coefficients = [e.metrics["actor/reward_kl_penalty_coeff"] for e in went_on]
    assert coefficients == pytest.approx([max(0.0005, 0.001 * 0.8 ** (step // 2)) for step in range(12)])


def truncated(checkpoint: Checkpoint | None) -> Checkpoint:
    """The checkpoint, with a file that was not written to its end."""
    assert checkpoint is not None
    model = next((Path(checkpoint.path) / "actor").glob("model*.pt"))
    model.write_bytes(model.read_bytes()[:1000])
    return checkpoint


def _last_start(events: list[FleetEvent], trial: Trial) -> int:
    return max(i for i, e in enumerate(events) if isinstance(e, Started) and e.trial == trial)


def done(event: Stepped) -> dict[str, float]:
    """What the step did, without how fast it was."""
    return {k: v for k, v in event.metrics.items() if not MEASURED.search(k)}


@pytest.mark.verl
def test_real_verl_that_hangs_while_it_starts_is_ended_without_remains(
    tmp_path: Path, real: VerlEngine, world: dict[str, object]
) -> None:
    engine, base = real, Overrides.of(world)
    fleet = Fleet(
        engine,
        folder_of=lambda t: tmp_path / t.id,
        classify=lambda log: Cause(FailureClass.UNKNOWN, ""),
        timeouts=Timeouts(15, 60, 60),
    )
    fleet.submit(Trial(base, 1, 3))
    events: list[FleetEvent] = []
    while fleet._queue or fleet._busy():
        events += fleet.wait(5.0)
    (ended,) = [e for e in events if isinstance(e, Ended)]
    assert isinstance(ended.outcome, Failed) and ended.outcome.failure_class is FailureClass.HANG
    eventually(lambda: all(tagged(r.name) == {} for r in engine._runtimes), seconds=10.0)
    fleet.close()


def left_by_an_earlier_driver(launcher: FakeLauncher, base: Trial, now: Trial | None) -> FakeHost:
    """A host as a driver that died leaves it: started with one trial, working on another one."""
    label = {"trial": base.to_json(), "reuse": True, "extras": [], "resumed": 0}
    command = None if now is None else {"type": "trial", "id": now.id}
    host = FakeHost(f"sweep-a1-{base.id}-0123", label, command)
    launcher.before.append(host)
    return host


def test_what_still_runs_a_wanted_trial_is_adopted_and_tells_it_from_the_start(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, cpu_engine(), campaign="a1")
    host = left_by_an_earlier_driver(launcher, trial(seed=1), now=trial(seed=2))
    host.say(type="started", id=trial(seed=2).id, reset_seconds=1.0, warm=True)
    host.say(type="step", id=trial(seed=2).id, step=1, metrics={"critic/score/mean": 0.5})
    runtime = engine.adopt({trial(seed=2): tmp_path})[trial(seed=2).id]
    assert [type(e).__name__ for e in runtime.events(0.0)] == ["TrialStarted", "Stepped"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1
    assert runtime.serves(trial(seed=3)) and not host.closed


@pytest.mark.parametrize("now", [None, trial(seed=5)])
def test_what_idles_or_runs_something_else_is_ended(tmp_path: Path, now: Trial | None) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, cpu_engine(), campaign="a1")
    host = left_by_an_earlier_driver(launcher, trial(seed=1), now)
    assert engine.adopt({trial(seed=2): tmp_path}) == {}
    assert host.closed


def test_a_process_of_another_campaign_is_left_alone(tmp_path: Path) -> None:
    launcher = FakeLauncher(CPU=16, GPU=1)
    other = VerlEngine(launcher, cpu_engine(), campaign="a2")
    host = left_by_an_earlier_driver(launcher, trial(seed=1), now=trial(seed=1))
    assert other.adopt({trial(seed=1): tmp_path}) == {} and not host.closed


def test_a_trial_that_goes_on_is_started_from_its_checkpoint_and_tells_the_steps_before_it(tmp_path: Path) -> None:
    rows = [{"version": 1, "step": s, "data": {"critic/score/mean": s / 10}} for s in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    launcher = FakeLauncher(CPU=16, GPU=1)
    engine = VerlEngine(launcher, cpu_engine())
    runtime = engine.start(trial(), tmp_path, reuse=False, checkpoint=Checkpoint(2, "/ck/global_step_2"))
    runtime.submit(trial(), tmp_path)
    assert "trainer.resume_from_path='/ck/global_step_2'" in launcher.launched[0][0]
    launcher.hosts[0].say(type="started", id=trial().id, reset_seconds=0.0, warm=False)
    launcher.hosts[0].say(type="step", id=trial().id, step=3, metrics={"critic/score/mean": 0.31})
    assert [e.step for e in runtime.events(0.0) if isinstance(e, ports.Stepped)] == [1, 2, 3]
    written = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["data"]["critic/score/mean"] for row in written] == [0.1, 0.2, 0.31]


def test_fewer_trials_run_at_once_while_a_node_is_away_and_none_of_them_is_infeasible(tmp_path: Path) -> None:
    node = {"CPU": 16.0, "GPU": 1.0}
    launcher = FakeLauncher(node, node)
    engine = VerlEngine(launcher, gpu_engine(Machine(), slots=2))
    engine.check(trial())
    assert engine.slots == 2
    launcher.found = [node]
    assert engine.slots == 1
    launcher.found = []
    assert engine.slots == 1
    with pytest.raises(EngineError, match="the Ray cluster has 0"):
        engine.start(trial(), tmp_path)


def test_without_a_number_of_slots_the_cluster_is_filled() -> None:
    engine = VerlEngine(FakeLauncher({"CPU": 64, "GPU": 4}, {"CPU": 10, "GPU": 4}), gpu_engine(Machine(), slots=0))
    engine.check(trial())
    assert engine.slots == 7  # the second node has CPUs for three


def test_a_trial_for_which_no_node_has_the_gpus_together_could_never_run(tmp_path: Path) -> None:
    node = {"CPU": 32.0, "GPU": 1.0}
    engine = VerlEngine(FakeLauncher(node, node), GPU)
    with pytest.raises(ConfigError, match="2 GPUs and 6 CPUs together"):
        engine.start(trial(**{"trainer.n_gpus_per_node": 2}), tmp_path)
