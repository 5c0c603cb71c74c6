"""`Progress`: everything a rule may look at, as values read from the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_not
from typing import TypeVar

from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate that a stage wants run: effective settings, what was asked for before projection, and why.

    `settings` are laid over the campaign's base and the frozen winners; empty settings are the baseline.
    `number` is the sampler's own trial number where a sampler proposed it.
    """

    settings: Overrides
    seed: int
    requested: Overrides = NOTHING
    note: str = ""
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A trial of a stage; `outcome` is None while it runs."""

    trial: Trial
    settings: Overrides
    requested: Overrides
    note: str = ""
    outcome: Outcome | None = None

    @property
    def finished(self) -> Finished | None:
        """The outcome if the trial reached its last step."""
        return self.outcome if isinstance(self.outcome, Finished) else None

    @property
    def lost(self) -> bool:
        """Whether the machine ended the trial, for good: nothing is known of its settings."""
        return isinstance(self.outcome, Failed) and self.outcome.failure_class is FailureClass.ENV_FAULT


class Index:
    """Records by their settings and by what their trials run, brought up to date from one decision to the next at the
    cost of what changed. Settings that say what another arm's or the base says are the same trials.
    """

    def __init__(self) -> None:
        self._records: tuple[Record, ...] = ()
        self._runs: dict[Overrides, dict[int, Record]] = {}
        self._arms: dict[Overrides, dict[int, Record]] = {}
        self._running: dict[int, None] = {}
        self._by_seeds: dict[int, dict[Overrides, None]] = {}
        self._lost: dict[int, None] = {}
        self._lost_arms: dict[Overrides, None] = {}

    def follow(self, records: tuple[Record, ...]) -> None:
        """The index is that of `records`: the former ones, some with another outcome, and new ones after them."""
        known = len(self._records)
        changed = compress(range(known), map(is_not, self._records, records))
        for place in (*changed, *range(known, len(records))):
            self._take(place, records[place])
        self._records = records

    def runs(self, overrides: Overrides) -> tuple[Record, ...]:
        """The records whose trials run with these overrides, in order."""
        return tuple(self._runs.get(overrides, {}).values())

    @property
    def arms(self) -> Collection[Overrides]:
        """The settings that have a record, in order of their first."""
        return self._arms.keys()

    @property
    def running(self) -> tuple[Record, ...]:
        """The records without an outcome, in order."""
        return tuple(self._records[place] for place in sorted(self._running))

    @property
    def lost_trials(self) -> int:
        """How many records the machine ended."""
        return len(self._lost)

    @property
    def lost_arms(self) -> int:
        """How many settings have no record but such."""
        return len(self._lost_arms)

    def with_fewer_seeds(self, count: int) -> tuple[Overrides, ...]:
        """The arms with records of fewer than so many seeds."""
        return tuple(s for seeds, arms in self._by_seeds.items() if seeds < count for s in arms)

    def _take(self, place: int, record: Record) -> None:
        arm = self._arms.setdefault(record.settings, {})
        self._by_seeds.get(_seeds(arm), {}).pop(record.settings, None)
        arm[place] = record
        self._runs.setdefault(record.trial.overrides, {})[place] = record
        self._by_seeds.setdefault(_seeds(arm), {})[record.settings] = None
        _put(self._running, place, record.outcome is None)
        _put(self._lost, place, record.lost)
        _put(self._lost_arms, record.settings, all(r.lost for r in arm.values()))


def _put(members: dict[K, None], member: K, belongs: bool) -> None:
    """The member is in or out."""
    if belongs:
        members[member] = None
    else:
        members.pop(member, None)


def _seeds(arm: Mapping[int, Record]) -> int:
    return len({record.trial.seed for record in arm.values()})


@dataclass(frozen=True, slots=True)
class Progress:
    """A stage's base settings (campaign base with the upstream winners) and its trials, in order of their start.

    `seeds` are the seeds that the stage may use, in the order of use. `replicates` are arms of the stages before that
    ran on several seeds, in the order of their seeds. A confirmation has as `found` what all winners lay over the base,
    and as `searched` the runs by which the search saw winner and base.
    `exhausted`: the stage's sampler has nothing left to propose.
    """

    base: Overrides
    records: tuple[Record, ...]
    seeds: tuple[int, ...] = (0,)
    replicates: tuple[tuple[Finished, ...], ...] = ()
    found: Overrides = NOTHING
    searched: tuple[Finished, Finished] | None = None
    exhausted: bool = False
    index: Index = field(default_factory=Index, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.index.follow(self.records)

    def later(self, records: tuple[Record, ...]) -> Progress:
        """The progress with these records, which go on from its own; it takes the index over from this one."""
        return replace(self, records=records)

    def arm(self, settings: Overrides) -> tuple[Record, ...]:
        """The records of the trials that these settings make, whatever their seed."""
        return self.index.runs(self.base.merged(settings))

    @property
    def running(self) -> tuple[Record, ...]:
        """The records without an outcome."""
        return self.index.running


def replicated(records: Iterable[Record]) -> tuple[tuple[Finished, ...], ...]:
    """The arms among the records that finished on at least two seeds, each in the order of its seeds."""
    arms: dict[tuple[Overrides, int], dict[int, Finished]] = {}
    for record in records:
        if record.finished is not None:
            arms.setdefault((record.trial.overrides, record.trial.steps), {})[record.trial.seed] = record.finished
    return tuple(tuple(runs[seed] for seed in sorted(runs)) for runs in arms.values() if len(runs) > 1)
