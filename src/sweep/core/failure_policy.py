"""What follows a failed attempt, by its class: another attempt, a settled failure, or the end of the campaign.

Pure: the attempts so far in, a step out. Source: METHOD section 8 (retried or not by class).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sweep.core.failure import FailureClass, Retry
from sweep.core.outcome import Failed, Outcome

ENV_ATTEMPTS = 3
"""Environment faults of one trial in a row, nothing having made a step meanwhile, after which the campaign stops: the
machine needs a person. METHOD section 8 asks for a breaker; the number is ours."""

MOST_ENV_ATTEMPTS = 6
"""Environment faults that a trial may meet while others go on; then it is given up, not the campaign. Ours."""

HANG_ATTEMPTS = 2
"""Attempts at a trial that hangs: one retry, since a hang costs a whole time-out. Ours."""

UNKNOWN_ATTEMPTS = 2
"""Attempts at a trial that ended for no known reason, where the doctor advises the same once more. Ours."""

ENV_WAIT_SECONDS = (5.0, 30.0, 120.0)
"""Waits before the next attempt after an environment fault: bounded, growing. Ours."""


OF_THE_POINT = frozenset({FailureClass.INFEASIBLE_CONFIG, FailureClass.OOM_GPU, FailureClass.OOM_HOST})
"""Failures that the trial's own settings bring about: the same point fails again."""


@dataclass(frozen=True, slots=True)
class Again:
    """Run the same trial again after a wait."""

    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Settle:
    """Record the failure as the trial's outcome and go on."""


@dataclass(frozen=True, slots=True)
class Break:
    """Stop the campaign: further trials would fail the same way."""

    reason: str


Step: TypeAlias = Again | Settle | Break


def may_be_tried_again(outcome: Outcome | None) -> bool:
    """Whether a settled trial may do better once somebody has mended the machine."""
    return isinstance(outcome, Failed) and outcome.failure_class not in OF_THE_POINT


def after(failure: Failed, earlier: Sequence[Failed], idle_faults: int = 0) -> Step:
    """What to do after `failure`, which followed the `earlier` failed attempts at the same trial.

    `idle_faults` counts environment faults before a first step of this trial, this one included, since any trial of
    the campaign last made a step: many trials that fail at once are one fault, not many.
    """
    if failure.abort and failure.last_step == 0:
        return Break(f"every trial would end like this one: {failure.said}")
    alike = 1 + sum(1 for f in earlier if f.failure_class is failure.failure_class)
    if failure.failure_class is FailureClass.HANG:
        helpless = failure.retry is Retry.NEW_CONFIG  # said by the console; a silent hang has no advice
        return Again(0.0) if alike < HANG_ATTEMPTS and not helpless else Settle()
    if failure.failure_class is FailureClass.UNKNOWN and failure.retry in (Retry.SAME, Retry.RESUME):
        return Again(0.0) if alike < UNKNOWN_ATTEMPTS else Settle()
    if failure.failure_class is not FailureClass.ENV_FAULT:
        return Settle()
    if idle_faults >= ENV_ATTEMPTS:
        return Break(f"{idle_faults} attempts in a row met the same kind of environment fault: {failure.said}")
    if alike >= MOST_ENV_ATTEMPTS:
        return Settle()
    return Again(ENV_WAIT_SECONDS[min(alike, len(ENV_WAIT_SECONDS)) - 1])
