"""Answers for `storage`: drivers, search spaces and URLs played on a real store in a temporary SQLite file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.adapters.lease import Holder, Lease
from sweep.adapters.optuna_store import OptunaStore
from sweep.adapters.storage import open_storage, storage_warning
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Knob, Ladder, LadderRule, Rung, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.core.winner import Score
from sweep.errors import StoreError
from tests.adapters.store_stages import finished

STAGE = Stage("stage", (Knob("knob", 0, 1000, integer=True),), SearchRule(), "reward", StageBudget(10, 20))
EVENTS = {
    "starts": re.compile(r"(?:worker )?(?P<who>\w) starts trial (?P<trial>\d+)"),
    "fails": re.compile(r"(?:worker )?(?P<who>\w) marks trial (?P<trial>\d+) FAIL"),
    "finishes": re.compile(r"(?:worker )?(?P<who>\w) finishes trial (?P<trial>\d+) with value (?P<value>[\d.]+)"),
}
"""What drivers do; events that match none are only about time."""


class Drivers:
    """Drivers of one campaign by name, each on a host of its own; a new one takes over from those before."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder}/optuna.db"
        self._stores: dict[str, OptunaStore] = {}

    def __getitem__(self, name: str) -> OptunaStore:
        if name not in self._stores:
            holder = Holder(name, f"host-{name}", 1, "1", f"space-{name}")
            lease = Lease.take(self._url, "a1", holder=holder, beat_seconds=600, stale_seconds=-1.0)
            self._stores[name] = OptunaStore(open_storage(self._url), "a1", 0, lease, 5.0)
        return self._stores[name]

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def driver_events(given: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a result that comes after its trial was given up and begun again."""
    with tempfile.TemporaryDirectory() as folder:
        drivers, seen = Drivers(Path(folder)), {}
        for event in given["events"]:
            for kind, pattern in EVENTS.items():
                if match := pattern.search(event):
                    seen[kind] = match
                    _play(drivers[match["who"]], kind, match)
        second = drivers[seen["fails"]["who"]]
        trial = _trial(int(seen["fails"]["trial"]))
        told = [t for t in open_storage(f"sqlite:///{folder}/optuna.db").get_all_trials(1) if t.values]
        late = isinstance(second.find(trial.id), Finished)
        drivers.close()
    result = "the late result is kept in the storage as late" if late else "the late result is lost"
    once = "not told to the sampler twice" if len(told) <= 1 else "told twice"
    copy = "the copy is cancelled if it has not started: its result is found" if late else "the copy runs again"
    return {"action": f"{result}, {once}, the loop continues; {copy}", "text": result}


def _play(store: OptunaStore, kind: str, match: re.Match[str]) -> None:
    trial = _trial(int(match["trial"]))
    proposal = Proposal(trial.overrides, 0)
    if kind == "starts":
        store.intend(STAGE, proposal, trial)
    elif kind == "fails":
        store.settle(STAGE, trial, Failed(FailureClass.HANG, "silent"), None)
        store.intend(STAGE, proposal, trial)
    else:
        store.settle(STAGE, trial, finished(float(match["value"])), Score(float(match["value"])))


def _trial(number: int) -> Trial:
    return Trial(Overrides.of({"knob": number}), 0, 20)


def changed_space(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the store still lets the stage ask after its space was edited."""
    before, after = _stage(given["stored_space"]), _stage(given["new_space"])
    with tempfile.TemporaryDirectory() as folder:
        store = OptunaStore.open(f"sqlite:///{folder}/optuna.db", "a1")
        store.intend(before, Proposal(NOTHING, 0), Trial(NOTHING, 0, 20))
        store.close()
        store = OptunaStore.open(f"sqlite:///{folder}/optuna.db", "a1")
        try:
            store.records(after)
        except StoreError as error:
            return {"verdict": "ERROR", "code": "SPACE_CHANGED", "action": f"refuse: {error}", "text": str(error)}
        finally:
            store.close()
    return {"verdict": "OK", "code": "OK", "action": "go on", "text": ""}


def _stage(space: Mapping[str, Any]) -> Stage:
    """Ranges as knobs, lists as ladders."""
    knobs = tuple(
        Knob(key, entry["low"], entry["high"], log=bool(entry.get("log")))
        for key, entry in space.items()
        if isinstance(entry, Mapping)
    )
    ladders = tuple(
        Ladder(key, tuple(Rung(str(value), Overrides.of({key: value})) for value in entry))
        for key, entry in space.items()
        if isinstance(entry, list)
    )
    return Stage("stage", knobs, LadderRule(ladders), "reward", StageBudget(10, 20))


def location(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the store says of the place of its database."""
    with tempfile.TemporaryDirectory() as folder:
        mounts = Path(folder) / "mounts"
        place = "/" + given["url"].split("///", 1)[-1].strip("/").split("/")[0]
        mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {place} {given.get('fs_type', 'ext4')} rw 0 0\n")
        said = storage_warning(given["url"], mounts)
    if said is None:
        return {"verdict": "OK", "code": "OK", "action": "", "text": ""}
    return {"verdict": "WARN", "code": "SQLITE_SHARED", "action": said, "text": said}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "event_sequence": driver_events,
    "study_resume": changed_space,
    "storage": location,
}
