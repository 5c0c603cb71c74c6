"""`Shelf`: one stage's trials, written to its study first and held in memory after, so that reading costs nothing.

The driver is the only writer while it holds the campaign's lease; `Shelf` assumes that and does not check it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sweep.adapters.proposer import Proposer, worth_learning
from sweep.adapters.search_space import distributions, parameters
from sweep.adapters.study_log import StudyLog
from sweep.adapters.trial_attributes import (
    Stored,
    as_stored,
    attempts_to_json,
    ending,
    intent,
    last_attempt_ended,
    outcome_of,
)
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.outcome import to_json as outcome_to_json
from sweep.core.progress import Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.errors import StoreError

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

LATE = "late"
"""First part of the study attributes `late/TRIAL/KEY`: outcomes that came after their trial was settled."""


@dataclass(slots=True)
class Entry:
    """A trial of the stage, the `place`th of its records; `optuna_id` is its latest Optuna trial."""

    place: int
    record: Record
    score: Score | None
    attempts: tuple[Failed | None, ...]
    optuna_id: int
    orphaned: bool = False
    sampler_state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """True until the trial has its outcome."""
        return self.record.outcome is None


class Shelf:
    """The entries of one study by trial id, in order of their first start.

    Opened by a driver, it tells Optuna what a killed driver had written but not told.
    """

    def __init__(self, stage_name: str, log: StudyLog, driver: bool) -> None:
        from optuna.exceptions import UpdateFinishedTrialError

        self.stage_name, self._log = stage_name, log
        self.entries: dict[str, Entry] = {}
        self.attributes = log.attributes()
        self.late: dict[str, Outcome] = dict(_late_outcomes(self.attributes))
        self._proposer: Proposer | None = None
        self._begun = 0
        self._in_order: list[Record] = []
        self._records: tuple[Record, ...] | None = None
        for trial in log.trials():
            stored = Stored.read(trial.user_attrs)
            if stored is None:
                continue  # not ours: made by hand
            self._begun += 1
            if driver and not trial.state.is_finished() and stored.record.outcome is not None:
                with suppress(UpdateFinishedTrialError):
                    log.tell(trial._trial_id, stored.record.outcome, stored.score)
            entry = self._put(_as_closed(trial, stored), trial._trial_id)
            entry.orphaned, entry.sampler_state = entry.open, trial.system_attrs

    @property
    def records(self) -> tuple[Record, ...]:
        """The records in order of their first start."""
        if self._records is None:
            self._records = tuple(self._in_order)
        return self._records

    @property
    def winner(self) -> tuple[int, Winner] | None:
        """The frozen winner behind its place in the order of freezing; None if there is none yet."""
        content = self.attributes.get("winner")
        return None if content is None else (int(content["order"]), Winner.from_json(content))

    def set_attribute(self, key: str, value: Any) -> None:
        """The study's attribute has this value."""
        self._log.write_study([(key, value)])
        self.attributes[key] = value

    def ask(self, stage: Stage, rule: SearchRule, seed: int) -> Proposal:
        """The next proposal of the rule's sampler. It leaves no trace in the study until it is intended."""
        if self._proposer is None or self._proposer.full:
            self._proposer = Proposer(stage, rule, seed, self._log.sampler_state())
            for entry in worth_learning(list(self.entries.values())):
                self._proposer.begun(entry.record, entry.sampler_state)
                if not entry.open:
                    self._proposer.ended(entry.record, entry.score)
        return self._proposer.ask(draws=self._begun)

    def discard(self, proposal: Proposal) -> None:
        """The sampler knows that its proposal is not run."""
        if self._proposer is not None:
            self._proposer.drop(proposal)

    def intend(self, stage: Stage, proposal: Proposal, trial: Trial) -> None:
        """The trial, or the next attempt of an open one, is recorded as about to start."""
        entry = self.entries.get(trial.id)
        asked = self._proposer is not None and self._proposer.asked(proposal)
        if entry is not None and entry.open and self._attempt_begun(entry, asked):
            return
        if entry is not None and entry.record.finished is not None:
            self.discard(proposal)  # the sampler knows the value of this point
        else:
            self._begin(stage, proposal, trial, (*(entry.attempts if entry else ()), None))

    def fail_attempt(self, trial: Trial, failure: Failed) -> None:
        """The attempt is recorded as failed, the trial stays open unless another program has closed it."""
        entry = self._entry(trial)
        if entry.open and entry.attempts[-1] is None:
            self._write_attempts(entry, (*entry.attempts[:-1], failure))

    def settle(self, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """The trial has its outcome; one that it has already stands, and a different one is kept as late."""
        from optuna.exceptions import UpdateFinishedTrialError

        entry, ended = self._entry(trial), as_stored(outcome)
        if not entry.open:
            self._keep_late(entry, ended)
            return
        try:
            self._log.write(entry.optuna_id, ending(outcome, score))
            self._log.tell(entry.optuna_id, ended, score)
        except UpdateFinishedTrialError:
            self.refresh(entry)
            self._keep_late(entry, ended)
            return
        self._end(entry, ended, score, last_attempt_ended(entry.attempts, ended))

    def refresh(self, entry: Entry) -> None:
        """The entry as the storage has it now: another driver may have settled it, or left a late outcome."""
        self.late |= dict(_late_outcomes(self._log.attributes()))
        trial = self._log.trial(entry.optuna_id)
        stored = Stored.read(trial.user_attrs)
        if trial.state.is_finished() and stored is not None:
            closed = _as_closed(trial, stored)
            assert closed.record.outcome is not None
            self._end(entry, closed.record.outcome, closed.score, closed.attempts)

    def _begin(self, stage: Stage, proposal: Proposal, trial: Trial, attempts: tuple[Failed | None, ...]) -> None:
        record = Record(trial, proposal.settings, proposal.requested, proposal.note)
        of_trial, of_study = self._proposer.take(proposal) if self._proposer is not None else ({}, {})
        self._log.write_sampler_state(of_study)
        attributes = intent(record, secrets.token_hex(8), attempts)
        optuna_id = self._log.create(parameters(stage, record), distributions(stage), attributes, of_trial)
        self._put(Stored(record, None, attempts), optuna_id).sampler_state = of_trial
        self._begun += 1
        if self._proposer is not None:
            self._proposer.begun(record, of_trial)

    def _attempt_begun(self, entry: Entry, asked: bool) -> bool:
        """Whether the open trial has its next attempt: False if another program has closed it."""
        if asked:
            raise StoreError(
                f"trial {entry.record.trial.id} of stage {self.stage_name} is running; a proposal that repeats it must "
                "be discarded, not begun"
            )
        if not self._write_attempts(entry, (*entry.attempts, None)):
            return False
        entry.orphaned = False
        return True

    def _write_attempts(self, entry: Entry, attempts: tuple[Failed | None, ...]) -> bool:
        """Whether the trial has these attempts: False if another program has closed it, and the entry then shows it."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            self._log.write(entry.optuna_id, [("attempts", attempts_to_json(attempts))])
        except UpdateFinishedTrialError:
            self.refresh(entry)
            return False
        entry.attempts = attempts
        return True

    def _keep_late(self, entry: Entry, outcome: Outcome) -> None:
        trial_id, settled = entry.record.trial.id, entry.record.outcome
        same = settled is not None and outcome_to_json(settled) == outcome_to_json(outcome)
        if same or isinstance(self.late.get(trial_id), Finished):
            return
        for key, value in ending(outcome, None):
            self.set_attribute(f"{LATE}/{trial_id}/{key}", value)
        self.late[trial_id] = outcome

    def _put(self, stored: Stored, optuna_id: int) -> Entry:
        """The trial's entry with this content; a finished one is not replaced."""
        trial_id = stored.record.trial.id
        entry = self.entries.get(trial_id)
        if entry is None:
            self._in_order.append(stored.record)
        elif entry.record.finished is not None:
            return entry
        place = len(self._in_order) - 1 if entry is None else entry.place
        entry = self.entries[trial_id] = Entry(place, stored.record, stored.score, stored.attempts, optuna_id)
        self._show(entry)
        return entry

    def _end(self, entry: Entry, outcome: Outcome, score: Score | None, attempts: tuple[Failed | None, ...]) -> None:
        entry.record = replace(entry.record, outcome=outcome)
        entry.score, entry.attempts, entry.orphaned = score, attempts, False
        self._show(entry)
        if self._proposer is not None:
            self._proposer.ended(entry.record, score)

    def _show(self, entry: Entry) -> None:
        self._in_order[entry.place], self._records = entry.record, None

    def _entry(self, trial: Trial) -> Entry:
        entry = self.entries.get(trial.id)
        if entry is None:
            raise StoreError(f"trial {trial.id} was never begun in stage {self.stage_name}; intend comes first")
        return entry


def _as_closed(trial: FrozenTrial, stored: Stored) -> Stored:
    """The stored trial, with a failure as its outcome if another program closed it without leaving one."""
    if not trial.state.is_finished() or stored.record.outcome is not None:
        return stored
    gone = Failed(FailureClass.UNKNOWN, f"closed as {trial.state.name} by another program")
    ended = stored.attempts if stored.attempts[-1] is not None else stored.attempts[:-1]
    return replace(stored, record=replace(stored.record, outcome=gone), attempts=(*ended, gone))


def _late_outcomes(attributes: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    for key in attributes:
        kind, _, rest = key.partition("/")
        trial_id, _, name = rest.partition("/")
        if kind == LATE and name == "outcome":
            prefix = f"{LATE}/{trial_id}/"
            parts = {k.removeprefix(prefix): v for k, v in attributes.items() if k.startswith(prefix)}
            yield trial_id, outcome_of(parts)
