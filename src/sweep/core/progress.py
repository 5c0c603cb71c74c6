"""`Progress`: everything a rule may look at, as values read from the store."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.core.outcome import Finished, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial


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


@dataclass(frozen=True, slots=True)
class Progress:
    """A stage's base settings (campaign base with the upstream winners) and its trials, in order of their start.

    `seeds` are the seeds that the stage may use, in the order of use.
    """

    base: Overrides
    records: tuple[Record, ...]
    seeds: tuple[int, ...] = (0,)

    def arm(self, settings: Overrides) -> tuple[Record, ...]:
        """The records whose settings are these, whatever their seed."""
        return tuple(r for r in self.records if r.settings == settings)

    @property
    def running(self) -> tuple[Record, ...]:
        """The records without an outcome."""
        return tuple(r for r in self.records if r.outcome is None)
