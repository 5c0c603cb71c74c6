"""What follows a failed attempt, by its class: another attempt, a settled failure, or the end of the campaign.

Pure: the attempts so far in, a step out. Source: METHOD section 8 (retried or not by class).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed

ENV_ATTEMPTS = 3
"""Equal environment faults without a step done after which the campaign stops: the machine needs a person. Ours."""

HANG_ATTEMPTS = 2
"""Attempts at a trial that hangs: one retry, since a hang costs a whole time-out. Ours."""

ENV_WAIT_SECONDS = (5.0, 30.0, 120.0)
"""Waits before the next attempt after an environment fault: bounded, growing. Ours."""


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


def after(failure: Failed, earlier: Sequence[Failed]) -> Step:
    """What to do after `failure`, which followed the `earlier` failed attempts at the same trial."""
    if failure.failure_class is FailureClass.HANG:
        hangs = 1 + sum(1 for f in earlier if f.failure_class is FailureClass.HANG)
        return Again(0.0) if hangs < HANG_ATTEMPTS else Settle()
    if failure.failure_class is not FailureClass.ENV_FAULT:
        return Settle()
    faults = [f for f in (*earlier, failure) if f.failure_class is FailureClass.ENV_FAULT]
    idle = [f for f in faults if f.last_step == 0]
    if len(idle) >= ENV_ATTEMPTS:
        return Break(f"{len(idle)} attempts in a row met the same kind of environment fault: {failure.message}")
    if len(faults) >= 2 * ENV_ATTEMPTS:
        return Settle()
    return Again(ENV_WAIT_SECONDS[min(len(faults), len(ENV_WAIT_SECONDS)) - 1])
