"""What a campaign knows at a moment (`State`), and what a fault cost it (`Tally`, `judge`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.adapters.optuna_store import OptunaStore
from sweep.core.outcome import to_json
from sweep.core.plan import CampaignPlan

MEASURED = ("step_seconds", "gen_seconds", "rollout_tokens_per_s", "tokens_per_s_per_gpu", "peak_gib", "free_gib")
"""Series of a real trial's curve that tell how fast it was, not what it did."""


@dataclass(frozen=True, slots=True)
class State:
    """`finished`: trial id to its curve; `attempts`: trial id to how often it was begun; `winners` by stage."""

    finished: Mapping[str, str]
    attempts: Mapping[str, int]
    winners: Mapping[str, str]

    @classmethod
    def of(cls, plan: CampaignPlan, *, leave_out: Sequence[str] = ()) -> State:
        """What the campaign's storage says now; curves without the series that are left out."""
        store = OptunaStore.open(plan.storage_url, plan.name, driver=False)
        try:
            finished: dict[str, str] = {}
            attempts: dict[str, int] = {}
            for stage in plan.stages:
                for record in store.records(stage):
                    trial_id = record.trial.id
                    attempts[f"{stage.name}/{trial_id}"] = len(store.attempts(stage, trial_id))
                    if record.finished is not None:
                        curve = to_json(record.finished)["curve"]
                        shown = {k: v for k, v in curve.items() if k not in leave_out}
                        finished[f"{stage.name}/{trial_id}"] = json.dumps(shown, sort_keys=True)
            winners = {w.stage: json.dumps(w.choice.settings.to_json(), sort_keys=True) for w in store.winners()}
        finally:
            store.close()
        return cls(finished, attempts, winners)


NOTHING = State({}, {}, {})


@dataclass(slots=True)
class Tally:
    """Faults made, things lost by them, trials repeated; `notes` say which."""

    faults: int = 0
    lost: int = 0
    repeated: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """The other's counts on top."""
        self.faults += other.faults
        self.lost += other.lost
        self.repeated += other.repeated
        self.notes += other.notes

    def judge(self, name: str, before: State, after: State, undisturbed: State | None) -> None:
        """One fault: what was finished `before` it must be unchanged `after`, and the end that of no fault at all."""
        self.faults += 1
        lost = [i for i, curve in before.finished.items() if after.finished.get(i) != curve]
        lost += [s for s, settings in before.winners.items() if after.winners.get(s) != settings]
        if undisturbed is not None:
            lost += [s for s, w in undisturbed.winners.items() if after.winners.get(s) != w]
            lost += [i for i, curve in undisturbed.finished.items() if after.finished.get(i) != curve]
        again = [i for i in before.finished if after.attempts.get(i) != before.attempts[i]]
        self.lost += len(set(lost))
        self.repeated += len(again)
        self.notes += [f"{name}: lost {i}" for i in sorted(set(lost))]
        self.notes += [f"{name}: {i} was begun again" for i in again]

    def trained_again(self, name: str, before: State, given: Sequence[str]) -> None:
        """Trials that a runtime was given after the fault although they were finished before it."""
        for trial_id in sorted({key.partition("/")[2] for key in before.finished} & set(given)):
            self.repeated += 1
            self.notes.append(f"{name}: {trial_id} was trained again")

    def line(self) -> str:
        """The counts in words."""
        return f"{self.faults} faults, {self.lost} lost, {self.repeated} repeated"


def touched(folder: Path) -> dict[str, int]:
    """Trial id to the time of its last metric, in nanoseconds: what a trial that runs again changes."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("trials/*/metrics.jsonl")}
