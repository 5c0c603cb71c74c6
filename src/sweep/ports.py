"""What the campaign needs from the outside world, as protocols; adapters and engines implement them.

A *runtime* is a started verl that serves one or more trials. Runtimes report events; `sweep.fleet` turns events into
outcomes, hands trials to runtimes and ends runtimes that went silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from sweep.core.outcome import Failed, Outcome
from sweep.core.progress import Proposal, Record
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A GPU's memory in use and free, GiB, whoever uses it."""

    used_gib: float
    free_gib: float


@dataclass(frozen=True, slots=True)
class RuntimeReady:
    """The runtime has loaded its models and waits for trials; its own warm-up is over."""

    startup_seconds: float


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """The trial's first step is about to begin: weights, optimizers and data order are at step 0.

    `machine` is the kind of machine, as times depend on it.
    """

    trial_id: str
    reset_seconds: float = 0.0
    warm: bool = False
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Stepped:
    """One training step was logged: verl's metric names and values."""

    trial_id: str
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """The trial left the training loop; `error` is empty if it reached `last_step` without one.

    `stopped_by` names the guard or request that stopped it early; `reusable` says that the runtime can serve on.
    """

    trial_id: str
    last_step: int
    error: str = ""
    stopped_by: str = ""
    reusable: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeGone:
    """The runtime's process is gone; a trial it was serving will not end by itself any more."""

    exit_code: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint of a trial's earlier attempt, after this step; every step up to it is known."""

    step: int
    path: str


RuntimeEvent: TypeAlias = RuntimeReady | TrialStarted | Stepped | TrialEnded | RuntimeGone


class Runtime(Protocol):
    """A started verl. Events come in order, each once."""

    name: str
    log_path: Path

    def serves(self, trial: Trial) -> bool:
        """Whether the trial differs from this runtime's base only by what can be changed between trials."""
        ...

    def submit(self, trial: Trial, folder: Path) -> None:
        """Queue the trial; its metrics file and checkpoints go to `folder`."""
        ...

    def events(self, wait_seconds: float) -> Sequence[RuntimeEvent]:
        """The new events, waiting at most so long for the first."""
        ...

    def stop_trial(self, trial_id: str, reason: str) -> None:
        """Ask the running trial to stop after its current step."""
        ...

    def log_text(self) -> str:
        """The runtime's console so far, its last megabyte if longer."""
        ...

    def close(self) -> None:
        """End the runtime: on return its processes are gone and its resources free. Safe to call again."""
        ...


class Engine(Protocol):
    """Starts runtimes, at most `slots` at a time."""

    @property
    def slots(self) -> int:
        """How many runtimes may run at once now; changes as nodes come and go, but is never below one."""
        ...

    def check(self, trial: Trial) -> None:
        """Does nothing if as many trials like this one as were asked for can run at once.

        Raises:
            ConfigError: if they cannot.
        """
        ...

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None) -> Runtime:
        """Start a runtime whose base configuration is the trial's; returns at once, `RuntimeReady` follows.

        Without `reuse` it serves this trial alone, with nothing set back: from a fresh start, or from the
        `checkpoint`, and then the steps before it are told again after `TrialStarted`. The trial is handed over by
        `Runtime.submit` in either case. Console and leftovers go to `folder`.

        Raises:
            EngineError: if the cluster cannot take it now.
            ConfigError: if it never could.
        """
        ...

    def checkpoint(self, trial: Trial, folder: Path) -> Checkpoint | None:
        """The latest checkpoint in the trial's own folder that it can go on from, None if there is none."""
        ...

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, Runtime]:
        """By trial id, what an earlier driver of the campaign left running with one of these trials.

        Such a runtime tells the whole trial again from its start. Everything else that was left is ended.
        """
        ...

    def versions(self) -> Mapping[str, str]:
        """Package to version, of everything that a result depends on."""
        ...

    def notices(self) -> Sequence[str]:
        """What a user should know about the machines that train, once."""
        ...

    def close(self) -> None:
        """End every runtime and whatever cluster this engine started. Safe to call again."""
        ...


@dataclass(frozen=True, slots=True)
class Orphan:
    """A trial that an earlier driver started and did not settle; `abandoned` attempts ended with their driver."""

    stage: str
    record: Record
    abandoned: int


class Store(Protocol):
    """The truth about trials. A finished trial is never lost, never run again, and known across stages.

    A trial is one record a stage, however often it was attempted: `intend`, then any number of `fail_attempt` and
    `intend` again, then `settle`. A failed trial may be intended anew, a finished one is only settled again.
    """

    def records(self, stage: Stage) -> tuple[Record, ...]:
        """The stage's trials in order of their first start.

        Raises:
            StoreError: if the stage's search space is not the one that its stored trials were drawn from.
        """
        ...

    def ask(self, stage: Stage, count: int) -> tuple[Proposal, ...]:
        """Candidates from the stage's sampler, values of the knobs as requested."""
        ...

    def intend(self, stage: Stage, proposal: Proposal, trial: Trial) -> None:
        """Record that the trial is about to start, before it does; for an open trial: that its next attempt is."""
        ...

    def discard(self, stage: Stage, proposal: Proposal, reason: str) -> None:
        """Tell the sampler that an asked proposal will not be run, say because an equal trial is running."""
        ...

    def fail_attempt(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        """Record how an attempt failed and leave the trial open for another; the sampler hears nothing."""
        ...

    def attempts(self, stage: Stage, trial_id: str) -> tuple[Failed | None, ...]:
        """One entry an attempt of the trial in this stage: how it failed, None if it did not; empty if never begun."""
        ...

    def orphans(self) -> tuple[Orphan, ...]:
        """What this driver found running when it opened the campaign and nobody has settled since, oldest first."""
        ...

    def settle(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """Record how the trial ended; `score` is None unless it finished and its objective could tell.

        The first outcome stands: settling a settled trial changes nothing, a different outcome is kept as late.
        """
        ...

    def find(self, trial_id: str) -> Outcome | None:
        """The outcome of a trial with this id in any stage, preferring a finished one."""
        ...

    def freeze(self, winner: Winner) -> None:
        """Record a stage's winner; a different winner for a frozen stage is refused.

        Raises:
            StoreError: if the stage already has another winner.
        """
        ...

    def unfreeze(self, stage_name: str) -> None:
        """Forget a stage's winner; its trials stay, and whoever froze on top of it finds it missing.

        Raises:
            StoreError: if the stage has none.
        """
        ...

    def winners(self) -> tuple[Winner, ...]:
        """The frozen winners in the order of freezing."""
        ...

    def close(self) -> None:
        """Let go of the campaign, so that another process may take it."""
        ...


@dataclass(frozen=True, slots=True)
class CampaignInfo:
    """What an observer may show about a campaign."""

    name: str
    folder: Path
    stages: tuple[str, ...]
    configuration: Mapping[str, object] = field(default_factory=dict)


class Observer(Protocol):
    """Watches a campaign. Its methods must not raise once it is open: a view never fails a trial."""

    def campaign_started(self, info: CampaignInfo) -> None: ...

    def stage_started(self, stage: Stage) -> None: ...

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None: ...

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None: ...

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None: ...

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None: ...

    def stage_frozen(self, stage: Stage, winner: Winner) -> None: ...

    def campaign_ended(self, exit_code: int) -> None: ...
