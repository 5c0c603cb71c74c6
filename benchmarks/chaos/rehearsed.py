"""A whole campaign of four stages over simulated trials in a process that may be killed: `plan_in`, `in_process`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.adapters.frozen_files import FrozenFiles
from sweep.adapters.lease import Lease
from sweep.adapters.optuna_store import OptunaStore
from sweep.adapters.storage import PATIENCE_SECONDS, open_storage
from sweep.campaign import Campaign, trial_folder
from sweep.config import compose, to_plan
from sweep.core.failure import Cause, FailureClass
from sweep.core.plan import CampaignPlan
from sweep.core.trial import Trial
from sweep.engines.rehearsal.engine import RehearsalEngine, RehearsalRuntime
from sweep.fleet import Fleet
from sweep.ports import RuntimeEvent

SETTINGS = (
    "model=tiny",
    "engine=rehearsal",
    "budget.steps=200",
    "budget.warmup_steps=2",
    "stages.minibatch.budget.trials=3",
    "stages.kl.rule=search",  # a sampler among the rules
    "stages.kl.budget.trials=4",
    "stages.token_budget.budget.trials=3",
    "stages.lr_lambda.budget.trials=5",
)

WRITES = (
    "create_new_trial",
    "create_new_study",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "set_trial_state_values",
    "set_study_user_attr",
    "set_study_system_attr",
)
"""Optuna's methods that record something."""


def plan_in(folder: Path, *, slots: int = 1, storage: str = "", name: str = "chaos") -> CampaignPlan:
    """The campaign's plan with its files in the folder."""
    plan = to_plan(compose([*SETTINGS, f"campaign={name}", f"runs={folder}"]))
    return replace(plan, slots=slots, storage_url=storage or plan.storage_url)


class KilledAfter:
    """A storage whose process is killed by signal 9 right after its n-th write; `writes` counts them."""

    def __init__(self, storage: Any, die_after: int) -> None:
        self._storage, self._die_after = storage, die_after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return self._counted(found) if name in WRITES else found

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            result = write(*arguments, **named)
            self.writes += 1
            if self.writes == self._die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


class PacedEngine(RehearsalEngine):
    """Simulated trials that take their time: `seconds` each. `log` gets a line for each that is handed out."""

    def __init__(self, plan: CampaignPlan, log: Path, seconds: float = 0.0) -> None:
        super().__init__(slots=plan.slots, base=plan.base, steps=plan.stages[0].budget.steps)
        self._log, self._seconds = log, seconds

    def start(self, trial: Trial, folder: Path, **named: Any) -> Any:
        """A paced runtime."""
        return PacedRuntime(super().start(trial, folder, **named), self._log, self._seconds)


class PacedRuntime:
    """A simulated runtime whose trials take real time, in as many parts as the runtime hands its steps over."""

    def __init__(self, runtime: RehearsalRuntime, log: Path, seconds: float) -> None:
        self._runtime, self._log, self._seconds = runtime, log, seconds
        self._due = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def submit(self, trial: Trial, folder: Path) -> None:
        """Note the trial, hand it over."""
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{trial.id}\n")
        self._due = time.monotonic() + self._seconds
        self._runtime.submit(trial, folder)

    def events(self, wait_seconds: float) -> list[RuntimeEvent]:
        """Nothing until the trial has taken its time, then all of it."""
        wait = min(wait_seconds, self._due - time.monotonic())
        if wait > 0:
            time.sleep(wait)
        return [] if time.monotonic() < self._due else list(self._runtime.events(0.0))


def drive(plan: CampaignPlan, log: Path, *, die_after: int = 0, seconds: float = 0.0) -> int:
    """Runs the campaign to its end; the number of writes to its storage. `log` gets the trials that are handed out."""
    folder = Path(plan.folder)
    folder.mkdir(parents=True, exist_ok=True)
    storage = KilledAfter(open_storage(plan.storage_url), die_after)
    lease = Lease.take(plan.storage_url, plan.name, beat_seconds=1.0)
    store = OptunaStore(storage, plan.name, plan.seeds[0], lease, PATIENCE_SECONDS)  # type: ignore[arg-type]
    engine = PacedEngine(plan, log, seconds)
    fleet = Fleet(
        engine, folder_of=lambda trial: trial_folder(plan, trial), classify=lambda log: Cause(FailureClass.UNKNOWN, log)
    )
    try:
        Campaign(plan, store=store, fleet=fleet, observers=[FrozenFiles(folder, store)]).run()
    finally:
        fleet.close()
        store.close()
    return storage.writes


def handed_out(log: Path) -> list[str]:
    """Ids of the trials that a runtime was given, in order."""
    return log.read_text().split() if log.exists() else []


def in_process(action: Callable[[], object]) -> int:
    """Starts the action in a process of its own, a copy of this one; its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        action()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def ended(pid: int) -> int:
    """The exit code of the process, negative for a signal; waits for it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
