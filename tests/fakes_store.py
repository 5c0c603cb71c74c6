"""Fakes of the store and of an observer: `MemoryStore`, `RecordingObserver`, `DriverKilled`.

`MemoryStore` keeps the contract of `sweep.ports.Store` (tests/adapters/test_store_contract.py runs it) without Optuna.
What outlives a driver is in `Disk`; `MemoryStore(disk)` is the next driver on it. With `die_after=n` the driver is
killed right after its n-th write has reached the disk.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.outcome import from_json as outcome_from_json
from sweep.core.outcome import to_json as outcome_to_json
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.errors import StoreError
from sweep.ports import CampaignInfo, Orphan


class DriverKilled(BaseException):
    """Stands for kill -9: nothing but a test may catch it."""


@dataclass
class Kept:
    """One trial of a stage as it lies on the disk."""

    record: Record
    score: Score | None = None
    attempts: tuple[Failed | None, ...] = (None,)


@dataclass
class Disk:
    """What outlives a driver. `told` is what a sampler would learn: (trial id, value or None) in order."""

    stages: dict[str, dict[str, Kept]] = field(default_factory=dict)
    spaces: dict[str, Stage] = field(default_factory=dict)
    winners: list[Winner] = field(default_factory=list)
    late: dict[str, Outcome] = field(default_factory=dict)
    told: list[tuple[str, float | None]] = field(default_factory=list)
    begun: int = 0
    writes: int = 0
    held: bool = False


class MemoryStore:
    """Implements `sweep.ports.Store` in memory."""

    def __init__(self, disk: Disk | None = None, *, seed: int = 0, die_after: int | None = None) -> None:
        self.disk = disk if disk is not None else Disk()
        if self.disk.held:
            raise StoreError("campaign is already driven by another MemoryStore; close it")
        self.disk.held = True
        self._seed, self._die_after = seed, die_after
        self._asked: set[int | None] = set()
        self._numbers = self._dropped = 0
        self._orphans = [
            (stage, trial_id)
            for stage, kept in self.disk.stages.items()
            for trial_id, one in kept.items()
            if one.record.outcome is None
        ]

    def records(self, stage: Stage) -> tuple[Record, ...]:
        return tuple(kept.record for kept in self._stage(stage).values())

    def ask(self, stage: Stage, count: int) -> tuple[Proposal, ...]:
        if not isinstance(stage.rule, SearchRule):
            raise StoreError(f"stage {stage.name} does not search")
        self._stage(stage)
        proposals = []
        for _ in range(count):
            self._numbers += 1
            draws = self.disk.begun + len(self._asked)
            draw = random.Random(f"{self._seed} {stage.name} {draws} {self._dropped}")
            values = Overrides.of({k.key: _drawn(draw, k.low, k.high, k.log, k.integer) for k in stage.knobs})
            self._asked.add(self._numbers)
            proposals.append(Proposal(values, self._seed, values, "asked of a random draw", self._numbers))
        return tuple(proposals)

    def intend(self, stage: Stage, proposal: Proposal, trial: Trial) -> None:
        trials = self._stage(stage)
        kept = trials.get(trial.id)
        asked = proposal.number in self._asked
        if kept is not None and kept.record.outcome is None:
            if asked:
                raise StoreError(f"trial {trial.id} is running; discard the proposal")
            kept.attempts = (*kept.attempts, None)
            self._no_longer_orphaned(stage, trial)
        elif kept is None or kept.record.finished is None:
            record = Record(trial, proposal.settings, proposal.requested, proposal.note)
            trials[trial.id] = Kept(record, attempts=(*(kept.attempts if kept else ()), None))
            self._asked -= {proposal.number}
            self.disk.begun, self._dropped = self.disk.begun + 1, 0
        else:
            self.discard(stage, proposal, "the sampler knows the value of this point")
            return
        self._wrote()

    def discard(self, stage: Stage, proposal: Proposal, reason: str) -> None:
        if proposal.number in self._asked:
            self._asked.remove(proposal.number)
            self._dropped += 1

    def fail_attempt(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        kept = self._kept(stage, trial)
        if kept.record.outcome is None and kept.attempts[-1] is None:
            kept.attempts = (*kept.attempts[:-1], failure)
            self._wrote()

    def attempts(self, stage: Stage, trial_id: str) -> tuple[Failed | None, ...]:
        kept = self._stage(stage).get(trial_id)
        return kept.attempts if kept else ()

    def orphans(self) -> tuple[Orphan, ...]:
        found = [(stage, self.disk.stages[stage][trial_id]) for stage, trial_id in self._orphans]
        return tuple(Orphan(stage, kept.record, kept.attempts.count(None)) for stage, kept in found)

    def settle(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        kept = self._kept(stage, trial)
        ended = outcome_from_json(outcome_to_json(outcome))
        if kept.record.outcome is not None:
            same = outcome_to_json(kept.record.outcome) == outcome_to_json(ended)
            if not same and not isinstance(self.disk.late.get(trial.id), Finished):
                self.disk.late[trial.id] = ended
            return
        kept.record, kept.score = replace(kept.record, outcome=ended), score
        if isinstance(ended, Failed) and kept.attempts[-1] is None:
            kept.attempts = (*kept.attempts[:-1], ended)
        self.disk.told.append((trial.id, score.value if isinstance(ended, Finished) and score else None))
        self._no_longer_orphaned(stage, trial)
        self._wrote()

    def find(self, trial_id: str) -> Outcome | None:
        kept = [trials[trial_id].record.outcome for trials in self.disk.stages.values() if trial_id in trials]
        known = [outcome for outcome in (*kept, self.disk.late.get(trial_id)) if outcome is not None]
        return next((outcome for outcome in known if isinstance(outcome, Finished)), known[0] if known else None)

    def freeze(self, winner: Winner) -> None:
        frozen = next((w for w in self.disk.winners if w.stage == winner.stage), None)
        if frozen is None:
            self.disk.winners.append(Winner.from_json(winner.to_json()))
            self._wrote()
        elif (frozen.choice.settings, frozen.stands_on) != (winner.choice.settings, winner.stands_on):
            raise StoreError(f"stage {winner.stage} is frozen at another winner")

    def unfreeze(self, stage_name: str) -> None:
        if stage_name not in {w.stage for w in self.disk.winners}:
            raise StoreError(f"stage {stage_name} is not frozen")
        self.disk.winners = [w for w in self.disk.winners if w.stage != stage_name]
        self._wrote()

    def winners(self) -> tuple[Winner, ...]:
        return tuple(self.disk.winners)

    def close(self) -> None:
        self.disk.held = False

    def _stage(self, stage: Stage) -> dict[str, Kept]:
        trials = self.disk.stages.setdefault(stage.name, {})
        known = self.disk.spaces.setdefault(stage.name, stage)
        if trials and sorted(known.knobs, key=str) != sorted(stage.knobs, key=str):
            raise StoreError(f"stage {stage.name} has trials from another search space: {known.knobs}")
        self.disk.spaces[stage.name] = stage
        return trials

    def _kept(self, stage: Stage, trial: Trial) -> Kept:
        kept = self._stage(stage).get(trial.id)
        if kept is None:
            raise StoreError(f"trial {trial.id} was never begun in stage {stage.name}")
        return kept

    def _no_longer_orphaned(self, stage: Stage, trial: Trial) -> None:
        self._orphans = [pair for pair in self._orphans if pair != (stage.name, trial.id)]

    def _wrote(self) -> None:
        self.disk.writes += 1
        if self.disk.writes == self._die_after:
            self.disk.held = False
            raise DriverKilled(f"after write {self.disk.writes}")


class RecordingObserver:
    """An observer that keeps what it was told, as (method, arguments), in `calls`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def campaign_started(self, info: CampaignInfo) -> None:
        self.calls.append(("campaign_started", (info,)))

    def stage_started(self, stage: Stage) -> None:
        self.calls.append(("stage_started", (stage,)))

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        self.calls.append(("trial_started", (stage, proposal, trial, folder)))

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:
        self.calls.append(("stepped", (stage, trial, step, dict(metrics))))

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        self.calls.append(("attempt_failed", (stage, trial, failure)))

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        self.calls.append(("trial_ended", (stage, trial, outcome, score)))

    def stage_frozen(self, stage: Stage, winner: Winner) -> None:
        self.calls.append(("stage_frozen", (stage, winner)))

    def campaign_ended(self, exit_code: int) -> None:
        self.calls.append(("campaign_ended", (exit_code,)))

    def named(self, method: str) -> list[tuple[object, ...]]:
        """The arguments of every call of this method."""
        return [arguments for name, arguments in self.calls if name == method]


def _drawn(draw: random.Random, low: float, high: float, log: bool, integer: bool) -> float | int:
    value = low * (high / low) ** draw.random() if log else draw.uniform(low, high)
    return round(value) if integer else value
