"""`Purse`: the GPU-hours that a campaign may spend; `check` ends it when they are gone.

Counts what trials took from their first step, failed attempts included, and the starts of verl in this run. A trial
that goes on from the checkpoint of a failed attempt has the steps before it counted in both: rather too much.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from sweep.core.outcome import Outcome
from sweep.core.plan import CampaignPlan
from sweep.core.stage import Stage
from sweep.errors import BudgetSpent
from sweep.ports import Store

SECONDS_AN_HOUR = 3600.0


def paid_outcomes(plan: CampaignPlan, store: Store) -> Iterable[Outcome]:
    """Every outcome that was paid for, and every failed attempt before one."""
    for stage in plan.stages:
        yield from paid_in(stage, store)


def paid_in(stage: Stage, store: Store) -> Iterable[Outcome]:
    """Those of a stage; what it took over was paid for elsewhere and has taken no time."""
    for record in store.records(stage):
        failed = [f for f in store.attempts(stage, record.trial.id) if f is not None]
        yield from failed
        if record.outcome is not None and record.outcome not in failed:
            yield record.outcome


@dataclass
class Purse:
    """`limit_gpu_hours` None: everything may be spent. A trial occupies `gpus`; a CPU counts as one."""

    limit_gpu_hours: float | None = None
    gpus: int = 1
    clock: Callable[[], float] = time.monotonic
    spent_seconds: float = 0.0
    _began: dict[str, float] = field(default_factory=dict)
    _took: list[float] = field(default_factory=list)

    def fill(self, outcomes: Iterable[Outcome]) -> None:
        """Take over what earlier runs of the campaign spent."""
        for outcome in outcomes:
            self.spent_seconds += outcome.wall_seconds

    def started(self, trial_id: str, start_seconds: float) -> None:
        """The trial's first step begins after so many seconds; where it begins anew, what ran in vain is in them."""
        self.spent_seconds += start_seconds
        self._began[trial_id] = self.clock()

    def ended(self, trial_id: str, outcome: Outcome, start_seconds: float = 0.0) -> None:
        """The trial, or an attempt at it, is over; `start_seconds` were spent on a start that came to no first step."""
        self._began.pop(trial_id, None)
        self.spent_seconds += start_seconds + outcome.wall_seconds
        if outcome.wall_seconds > 0:
            self._took.append(outcome.wall_seconds)

    @property
    def gpu_hours(self) -> float:
        """Spent so far, running trials included."""
        now = self.clock()
        running = sum(now - began for began in self._began.values())
        return (self.spent_seconds + running) * self.gpus / SECONDS_AN_HOUR

    def check(self, *, another: bool = False) -> None:
        """Returns while there is something left; with `another` while a trial as long as those before still fits.

        Raises:
            BudgetSpent: otherwise.
        """
        needed = median(self._took) * self.gpus / SECONDS_AN_HOUR if another and self._took else 0.0
        limit = math.inf if self.limit_gpu_hours is None else self.limit_gpu_hours
        if self.gpu_hours + needed > limit:
            raise BudgetSpent(self.gpu_hours, limit, needed)
