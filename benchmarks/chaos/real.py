"""Real verl trials on the CPU, killed from outside: the driver, a trial's process, a node of a Ray cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.chaos.tally import MEASURED, State, Tally, touched
from sweep.config import compose, to_plan

SETTINGS = (
    "model=tiny",
    "stage=kl",
    "stages.kl.follows=[]",
    "stages.kl.budget.trials=4",
    "budget.steps=6",
    "budget.warmup_steps=1",
)
VERL = (
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "data.max_response_length=12",
    "actor_rollout_ref.rollout.max_num_seqs=1",  # rounding must not depend on which requests share a batch
)
"""Small enough for ten starts in minutes; equal to the last bit whenever it is run."""

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED", "7"))
PATIENCE_SECONDS = 420.0


@dataclass
class Drive:
    """The campaign's command line in a folder, one driver after another."""

    folder: Path
    more: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.arguments = [*SETTINGS, *self.more, f"runs={self.folder}", "campaign=chaos", f"verl={list(VERL)}"]
        self.plan = to_plan(compose(self.arguments))

    @property
    def home(self) -> Path:
        """The campaign's folder."""
        return Path(self.plan.folder)

    def start(self) -> None:
        """Another driver, its console added to the log."""
        with (self.folder / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweep", *self.arguments], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> bool:
        """Kill the driver, and it alone; whether it was still there."""
        assert self.process is not None
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        return alive

    def finish(self) -> int:
        """The driver's exit code, at its own end."""
        assert self.process is not None
        return self.process.wait(PATIENCE_SECONDS)

    def state(self) -> State:
        """What the campaign's storage says now, without what is measured in seconds."""
        return State.of(self.plan, leave_out=MEASURED)

    def until(self, condition: Callable[[], object]) -> None:
        """Returns as soon as it holds.

        Raises:
            TimeoutError: if it does not, or the driver ends before; with the end of its console.
        """
        assert self.process is not None
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"the campaign does not go on:\n{self.console()[-3000:]}")
            time.sleep(0.1)

    def console(self) -> str:
        """What all drivers printed."""
        return (self.folder / "console.log").read_text(errors="replace")

    def steps(self) -> dict[str, int]:
        """Trial id to steps logged by its present attempt."""
        return {p.parent.name: len(p.read_bytes().splitlines()) for p in self.home.glob("trials/*/metrics.jsonl")}

    def halfway(self) -> set[str]:
        """Ids of the trials that have a step and not yet the last."""
        return {trial_id for trial_id, steps in self.steps().items() if 1 <= steps < self.plan.stages[0].budget.steps}

    def trainers(self) -> list[int]:
        """Ids of verl's own driver processes of this campaign."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if (
                b"verl.trainer.main_ppo" in command
                and str(self.folder).encode() in command
                and b"-S\0-c" not in command
            ):
                found.append(int(entry))
        return found


@cache
def undisturbed() -> tuple[State, float]:
    """The end of the campaign that nothing happens to, and the seconds that it takes."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        drive = Drive(Path(folder))
        drive.start()
        if drive.finish():
            raise RuntimeError(f"the campaign fails by itself:\n{drive.console()[-3000:]}")
        return drive.state(), time.monotonic() - begin


def driver_kills() -> Tally:
    """The driver killed `KILLS` times, each at a random moment of a whole campaign's time, over as many campaigns as
    that takes."""
    calm, seconds = undisturbed()
    moments, tally = random.Random(SEED), Tally()
    while tally.faults < KILLS:
        with tempfile.TemporaryDirectory() as folder:
            drive = Drive(Path(folder))
            faults: list[tuple[State, dict[str, int]]] = []
            drive.start()
            while tally.faults + len(faults) < KILLS:
                time.sleep(moments.uniform(0.0, seconds))
                if not drive.kill():
                    break
                faults.append((drive.state(), touched(drive.home)))
                drive.start()
            _judge("driver killed", drive, faults, calm, tally)
    return tally


def trial_kills() -> Tally:
    """verl's process killed in the middle of a campaign's first trial, which is cold, and of a later one."""
    (calm, _), tally = undisturbed(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        drive = Drive(Path(folder))
        drive.start()
        faults: list[tuple[State, dict[str, int]]] = []
        for earlier in (0, 2):
            drive.until(lambda earlier=earlier: len(drive.steps()) > earlier and drive.halfway())  # type: ignore[misc]
            faults.append((drive.state(), touched(drive.home)))
            for pid in drive.trainers():
                os.kill(pid, signal.SIGKILL)
        _judge("trial's process killed", drive, faults, calm, tally)
    return tally


def node_and_driver_lost() -> Tally:
    """On a Ray cluster of two nodes: the driver killed while two trials run, then one of the nodes."""
    from ray.cluster_utils import Cluster

    (calm, _), tally = undisturbed(), Tally()
    size = {"num_cpus": 16, "num_gpus": 1, "object_store_memory": 2**28, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=size)
    try:
        second = cluster.add_node(**size)
        with tempfile.TemporaryDirectory() as folder:
            drive = Drive(Path(folder), ("cluster=ray", f"cluster.address={cluster.address}", "cluster.slots=2"))
            drive.start()
            drive.until(lambda: len(drive.trainers()) == 2 and drive.halfway())
            alive = set(drive.trainers())
            faults = [(drive.state(), touched(drive.home))]
            drive.kill()
            drive.start()
            drive.until(lambda: drive.console().count("stage kl:") == 2 and drive.halfway())
            kept = alive & set(drive.trainers())
            faults.append((drive.state(), touched(drive.home)))
            cluster.remove_node(second, allow_graceful=False)
            _judge("driver, then node lost", drive, faults, calm, tally)
            if not kept:
                tally.repeated += 1
                tally.notes.append("driver lost on a cluster: its trials were not taken over")
    finally:
        cluster.shutdown()
    return tally


def _judge(name: str, drive: Drive, faults: list[tuple[State, dict[str, int]]], calm: State, tally: Tally) -> None:
    """The campaign run to its end, and what each of the faults on the way cost."""
    code = drive.finish()
    after, times = drive.state(), touched(drive.home)
    for number, (before, metrics) in enumerate(faults, start=1):
        finished = {key.partition("/")[2] for key in before.finished}
        tally.judge(f"{name} ({number})", before, after, calm)
        tally.trained_again(f"{name} ({number})", before, [i for i in finished if times.get(i) != metrics.get(i)])
    if code:
        tally.lost += 1
        tally.notes.append(f"{name}: the campaign ended with exit code {code}: {drive.console()[-1500:]}")
