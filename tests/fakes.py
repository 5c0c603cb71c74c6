"""Fakes of the ports, named as fakes: `FakeClock`, `Script`, `ScriptedEngine`, `ScriptedRuntime`.

A scripted engine plays trials from a script on a clock that only moves when somebody waits: deterministic, no
threads, no processes, a campaign of hundreds of trials in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.core.trial import Trial
from sweep.errors import EngineError
from sweep.ports import Checkpoint, RuntimeEvent, RuntimeGone, RuntimeReady, Stepped, TrialEnded, TrialStarted


@dataclass
class FakeClock:
    """Seconds that pass only when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now = max(self.now + seconds, math.nextafter(self.now, math.inf)) if seconds > 0 else self.now


def flat_metrics(step: int) -> dict[str, float]:
    """A step of a run that neither learns nor suffers, in verl's names."""
    return {
        "critic/score/mean": 0.1 + 0.001 * step,
        "critic/rewards/mean": 0.1 + 0.001 * step,
        "actor/reward_kl_penalty": 0.08,
        "actor/reward_kl_penalty_coeff": 0.001,
        "actor/grad_norm": 0.5,
        "actor/lr": 1e-6,
        "timing_s/step": 1.0,
        "timing_s/gen": 0.5,
        "perf/total_num_tokens": 1000.0,
        "perf/throughput": 1000.0,
    }


@dataclass(frozen=True)
class Script:
    """What happens to one attempt at a trial; by default it reaches its last step.

    `ends_at`: the trial leaves the loop after this step, with `error`, `stopped_by`, `reusable`.
    `dies_at`: the process is gone after this step, with `exit_code` and `log` on its console.
    `hangs_at`: nothing more is heard after this step. Step 0 is before the first one; `reset_error` ends the trial
    before it starts, as a failed guard does.
    """

    metrics: Callable[[int], Mapping[str, float]] = flat_metrics
    step_seconds: float = 1.0
    ends_at: int | None = None
    error: str = ""
    stopped_by: str = ""
    reusable: bool = True
    dies_at: int | None = None
    exit_code: int | None = 1
    hangs_at: int | None = None
    reset_error: str = ""
    log: str = ""
    never_ready: bool = False


@dataclass
class ScriptedRuntime:
    """A fake runtime: plays the engine's script for each trial that it is given, in order."""

    name: str
    base: Trial
    log_path: Path
    engine: ScriptedEngine
    reuse: bool
    given: list[Trial] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    closed: bool = False
    dead: bool = False
    checkpoint: Checkpoint | None = None
    agenda: list[tuple[float, RuntimeEvent]] = field(default_factory=list)
    log: str = ""

    def serves(self, trial: Trial) -> bool:
        return self.reuse and not self.closed and not self.dead and self.engine.same_base(self.base, trial)

    def submit(self, trial: Trial, folder: Path) -> None:
        assert not self.closed and not self.dead, f"{self.name} is gone and was given {trial.id}"
        assert self.reuse or not self.given, f"{self.name} serves one trial and was given another"
        self.given.append(trial)
        self.folders.append(folder)
        script = self.engine.script(trial, len(self.given) > 1)
        self.log += script.log
        self._plan(trial, script, warm=len(self.given) > 1)

    def events(self, wait_seconds: float) -> Sequence[RuntimeEvent]:
        clock = self.engine.clock
        until = clock() + wait_seconds
        if not self.agenda or self.agenda[0][0] > until:
            clock.advance(wait_seconds)
            return []
        clock.advance(max(0.0, self.agenda[0][0] - clock()))
        found = [event for due, event in self.agenda if due <= clock()]
        self.agenda = self.agenda[len(found) :]
        return found

    def stop_trial(self, trial_id: str, reason: str) -> None:
        """Cut the plan after the step that is being played."""
        self.stopped[trial_id] = reason
        place = next((i for i, (_, e) in enumerate(self.agenda) if isinstance(e, Stepped)), None)
        if place is not None:
            due, step = self.agenda[place]
            assert isinstance(step, Stepped)
            ended = TrialEnded(trial_id, step.step, stopped_by=reason)
            self.agenda = [*self.agenda[: place + 1], (due, ended)]

    def log_text(self) -> str:
        return self.log

    def close(self) -> None:
        self.closed = True

    def _plan(self, trial: Trial, script: Script, warm: bool) -> None:
        now = self.engine.clock()
        if not warm:
            now += self.engine.start_seconds
            if script.never_ready:
                return
            self.agenda.append((now, RuntimeReady(self.engine.start_seconds)))
        now += self.engine.reset_seconds
        if script.reset_error and self.reuse:
            self.agenda.append((now, TrialEnded(trial.id, 0, script.reset_error, reusable=False)))
            return
        self.agenda.append((now, TrialStarted(trial.id, self.engine.reset_seconds, warm)))
        points = (script.ends_at, script.dies_at, script.hangs_at)
        last = min((p for p in points if p is not None), default=trial.steps)
        resumed = self.checkpoint.step if self.checkpoint else 0
        for step in range(1, last + 1):
            now += script.step_seconds if step > resumed else 0.0
            self.agenda.append((now, Stepped(trial.id, step, script.metrics(step))))
        self._plan_end(trial, script, now, last)

    def _plan_end(self, trial: Trial, script: Script, now: float, last: int) -> None:
        if script.hangs_at == last:
            return
        if script.dies_at == last:
            self.dead = True
            self.agenda.append((now, RuntimeGone(script.exit_code)))
            return
        ended = TrialEnded(trial.id, last, script.error, script.stopped_by, script.reusable)
        self.agenda.append((now, ended))
        if not self.reuse:
            self.dead = True
            self.agenda.append((now, RuntimeGone(0)))


@dataclass
class ScriptedEngine:
    """A fake engine. `script(trial, warm)` says how an attempt goes; `same_base` which trials share a runtime.

    `started` keeps every runtime in order, `refuse` is the message of the `EngineError` for trials that it names.
    `checkpoints` are those that trials have, by trial id; `left` is what an earlier driver left running.
    """

    clock: FakeClock
    script: Callable[[Trial, bool], Script] = lambda trial, warm: Script()
    slots: int = 1
    same_base: Callable[[Trial, Trial], bool] = lambda base, trial: True
    start_seconds: float = 40.0
    reset_seconds: float = 1.0
    refuse: Mapping[str, str] = field(default_factory=dict)
    started: list[ScriptedRuntime] = field(default_factory=list)
    closed: bool = False
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    left: list[ScriptedRuntime] = field(default_factory=list)

    def checkpoint(self, trial: Trial, folder: Path) -> Checkpoint | None:
        return self.checkpoints.get(trial.id)

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, ScriptedRuntime]:
        wanted = {trial.id for trial in folders}
        found = {r.given[-1].id: r for r in self.left if r.given and r.given[-1].id in wanted and not r.closed}
        for runtime in self.left:
            if runtime not in found.values():
                runtime.close()
        self.started += found.values()
        self.left = []
        return found

    def start(
        self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None
    ) -> ScriptedRuntime:
        if trial.id in self.refuse:
            raise EngineError(self.refuse[trial.id])
        alive = [r for r in self.started if not r.closed]
        assert len(alive) < self.slots, f"{len(alive)} runtimes are open, slots are {self.slots}"
        name = f"runtime-{len(self.started)}"
        runtime = ScriptedRuntime(name, trial, folder / f"{name}.log", self, reuse, checkpoint=checkpoint)
        self.started.append(runtime)
        return runtime

    def versions(self) -> Mapping[str, str]:
        return {"scripted": "1"}

    def close(self) -> None:
        self.closed = True
        for runtime in self.started:
            runtime.close()
