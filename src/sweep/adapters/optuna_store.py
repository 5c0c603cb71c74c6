"""`OptunaStore`: the truth about a campaign's trials, in any database that Optuna opens.

One study a stage, named `CAMPAIGN/STAGE`; ask and tell. It keeps and translates; it decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sweep.adapters.lease import Lease
from sweep.adapters.search_space import changes, describe
from sweep.adapters.shelf import Shelf
from sweep.adapters.storage import PATIENCE_SECONDS, open_storage, patiently, storage_warning
from sweep.adapters.study_log import StudyLog
from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.progress import Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.errors import StoreError
from sweep.ports import Orphan

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

log = logging.getLogger(__name__)

ENGINE = "engine"
"""The study attribute that says which engine its trials run on."""


def campaigns(url: str) -> tuple[str, ...]:
    """The names of the campaigns that have begun a stage in this storage.

    Raises:
        StoreError: if the storage cannot be opened.
    """
    with _read(url) as storage:
        return tuple(sorted({campaign for campaign, _ in _studies(storage)}))


def engine_of(url: str, campaign: str) -> str | None:
    """The engine that the campaign's trials run on; None if it has begun no stage in this storage.

    Raises:
        StoreError: if the storage cannot be opened.
    """
    with _read(url) as storage:
        studies = patiently(storage.get_all_studies, "list the studies")
    own = [study for study in studies if study.study_name.startswith(f"{campaign}/")]
    return next((str(study.user_attrs[ENGINE]) for study in own if ENGINE in study.user_attrs), None)


@contextmanager
def _read(url: str) -> Iterator[BaseStorage]:
    """The storage for a look into it."""
    storage = open_storage(url, reader=True)
    try:
        yield storage
    finally:
        storage.remove_session()


def _studies(storage: BaseStorage, patience_seconds: float = PATIENCE_SECONDS) -> list[tuple[str, str]]:
    """Campaign and stage of every study of ours."""
    studies = patiently(storage.get_all_studies, "list the studies", patience_seconds)
    parts = [study.study_name.partition("/") for study in studies]
    return [(campaign, stage_name) for campaign, slash, stage_name in parts if slash]


class OptunaStore:
    """Implements `sweep.ports.Store`. Made by `OptunaStore.open`."""

    def __init__(
        self,
        storage: BaseStorage,
        campaign: str,
        seed: int,
        lease: Lease | None,
        patience_seconds: float,
        earlier: OptunaStore | None = None,
        engine: str = "",
    ) -> None:
        self._storage, self._campaign, self._seed, self._lease = storage, campaign, seed, lease
        self._earlier, self._engine = earlier, engine
        self._patience_seconds = patience_seconds
        self._shelves: dict[str, Shelf] = {}
        self._checked: dict[str, Stage] = {}
        for of_campaign, stage_name in _studies(storage, patience_seconds):
            if of_campaign == campaign:
                self._open_shelf(stage_name)

    @classmethod
    def open(
        cls,
        url: str,
        campaign: str,
        *,
        seed: int = 0,
        patience_seconds: float = PATIENCE_SECONDS,
        driver: bool = True,
        earlier: OptunaStore | None = None,
        engine: str = "",
    ) -> OptunaStore:
        """The campaign's store; as `driver` it holds the campaign's lease until `close`, otherwise it only reads.

        Finished trials of the `earlier` campaign are found here as well. A driver marks its stages with its `engine`.

        Raises:
            StoreError: if the storage cannot be opened or another driver holds the campaign.
        """
        if risk := storage_warning(url):
            log.warning("%s", risk)
        lease = Lease.take(url, campaign) if driver else None
        try:
            storage = open_storage(url, reader=not driver)
            return cls(storage, campaign, seed, lease, patience_seconds, earlier, engine)
        except BaseException:
            if lease is not None:
                lease.release()
            raise

    def records(self, stage: Stage) -> tuple[Record, ...]:
        """The stage's trials in order of their first start; costs the same however many there are."""
        return () if self._unseen(stage) else self._shelf(stage).records

    def ask(self, stage: Stage, count: int) -> tuple[Proposal, ...]:
        """Candidates from the stage's sampler, inside their ranges; their seed is the campaign's.

        Raises:
            StoreError: if the stage does not search with a sampler.
        """
        rule = stage.rule
        if not isinstance(rule, SearchRule):
            raise StoreError(f"stage {stage.name} walks {type(rule).__name__}; only a SearchRule can be asked")
        shelf = self._writable(stage)
        return tuple(shelf.ask(stage, rule, self._seed) for _ in range(count))

    def intend(self, stage: Stage, proposal: Proposal, trial: Trial) -> None:
        """Record that the trial, or its next attempt, is about to start."""
        self._writable(stage).intend(stage, proposal, trial)

    def discard(self, stage: Stage, proposal: Proposal, reason: str) -> None:
        """The sampler knows that its proposal is not run; nothing of it is kept."""
        log.info("stage %s: proposal %s discarded: %s", stage.name, proposal.requested.to_json(), reason)
        self._writable(stage).discard(proposal)

    def fail_attempt(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        """Record how the attempt failed; the trial stays open."""
        self._writable(stage).fail_attempt(trial, failure)

    def attempts(self, stage: Stage, trial_id: str) -> tuple[Failed | None, ...]:
        """One entry an attempt, in order."""
        entry = None if self._unseen(stage) else self._shelf(stage).entries.get(trial_id)
        return () if entry is None else entry.attempts

    def orphans(self) -> tuple[Orphan, ...]:
        """What was found running at opening and is neither settled nor begun again since."""
        return tuple(
            Orphan(shelf.stage_name, entry.record, entry.attempts.count(None))
            for shelf in self._shelves.values()
            for entry in shelf.entries.values()
            if entry.orphaned
        )

    def settle(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """Record how the trial ended; the first outcome stands, a different one is kept as late.

        Needs no lease: an outcome is true whoever drives now, and must not be lost.

        Raises:
            StoreError: if the trial was never intended in this stage.
        """
        self._shelf(stage).settle(trial, outcome, score)

    def find(self, trial_id: str) -> Outcome | None:
        """The outcome of the trial in any stage, a finished one first.

        For a trial that may run elsewhere the storage is asked again: its first driver may have settled it.
        """
        found: list[Outcome | None] = []
        for shelf in self._shelves.values():
            entry = shelf.entries.get(trial_id)
            if entry is not None and entry.open and (entry.orphaned or len(entry.attempts) > 1):
                shelf.refresh(entry)
            found += [shelf.late.get(trial_id), entry.record.outcome if entry is not None else None]
        known = [outcome for outcome in found if outcome is not None]
        finished = next((outcome for outcome in known if isinstance(outcome, Finished)), None)
        if finished is None and self._earlier is not None:
            taken_over = self._earlier.find(trial_id)
            finished = taken_over if isinstance(taken_over, Finished) else None
        return finished or (known[0] if known else None)

    def freeze(self, winner: Winner) -> None:
        """Record a stage's winner.

        Raises:
            StoreError: if the stage already has another winner.
        """
        self._check_lease()
        shelf = self._shelves.get(winner.stage) or self._open_shelf(winner.stage)
        if shelf.winner is None:
            places = [shelf.winner[0] for shelf in self._shelves.values() if shelf.winner is not None]
            shelf.set_attribute("winner", {**winner.to_json(), "order": max(places, default=-1) + 1})
            return
        frozen = shelf.winner[1]
        if (frozen.choice.settings, frozen.stands_on) != (winner.choice.settings, winner.stands_on):
            raise StoreError(
                f"stage {winner.stage} of campaign {self._campaign} is frozen at {frozen.choice.settings.to_json()}, "
                f"not {winner.choice.settings.to_json()}; winners never change: choose another campaign=NAME"
            )

    def unfreeze(self, stage_name: str) -> None:
        """Forget the stage's winner; its trials stay.

        Raises:
            StoreError: if the stage has none.
        """
        self._check_lease()
        shelf = self._shelves.get(stage_name)
        if shelf is None or shelf.winner is None:
            raise StoreError(f"stage {stage_name} of campaign {self._campaign} is not frozen")
        shelf.set_attribute("winner", None)

    def winners(self) -> tuple[Winner, ...]:
        """The frozen winners in the order of freezing, which is that of their stages unless one was unfrozen."""
        frozen = [shelf.winner for shelf in self._shelves.values() if shelf.winner is not None]
        return tuple(winner for _, winner in sorted(frozen, key=lambda pair: pair[0]))

    def close(self) -> None:
        """Let go of the campaign. Safe to call again."""
        if self._earlier is not None:
            self._earlier.close()
        self._storage.remove_session()
        if self._lease is not None:
            self._lease.release()

    def _unseen(self, stage: Stage) -> bool:
        """Whether a reader asks for a stage that no driver has begun: a reader makes no study."""
        return self._lease is None and stage.name not in self._shelves

    def _shelf(self, stage: Stage) -> Shelf:
        """The stage's shelf, once its search space is the stored one.

        Raises:
            StoreError: if they differ although trials were drawn.
        """
        shelf = self._shelves.get(stage.name) or self._open_shelf(stage.name)
        if self._checked.get(stage.name) == stage:
            return shelf
        space, stored = describe(stage), shelf.attributes.get("space")
        if stored is not None and shelf.entries and (changed := changes(stored, space)):
            raise StoreError(
                f"stage {stage.name} of campaign {self._campaign} has trials from another search space "
                f"({'; '.join(changed)}); put it back before anything is asked, or search the new space under another "
                f"name and take over the old results: campaign=NAME earlier={self._campaign}"
            )
        if self._lease is not None and stored != space:
            shelf.set_attribute("space", space)
        self._checked[stage.name] = stage
        return shelf

    def _open_shelf(self, stage_name: str) -> Shelf:
        log = StudyLog(self._storage, f"{self._campaign}/{stage_name}", self._patience_seconds)
        shelf = self._shelves[stage_name] = Shelf(stage_name, log, driver=self._lease is not None)
        if self._lease is not None and self._engine and ENGINE not in shelf.attributes:
            shelf.set_attribute(ENGINE, self._engine)
        return shelf

    def _writable(self, stage: Stage) -> Shelf:
        self._check_lease()
        return self._shelf(stage)

    def _check_lease(self) -> None:
        if self._lease is None:
            raise StoreError(f"campaign {self._campaign} was opened to read only")
        self._lease.check()
