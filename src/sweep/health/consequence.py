"""`consequence`: what a finding means for the trial it was made in; guards and the campaign act on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sweep.core.failure import Retry
from sweep.health.code import Code
from sweep.health.finding import Finding, Severity


class Fate(Enum):
    """How a trial with this finding is recorded."""

    KEEP = "COMPLETE"
    """Go on, and score it."""
    PRUNE = "PRUNED"
    """Stop it: its settings are a bad result, but one."""
    FAIL = "FAIL"
    """Stop it: it has no result, and must never be scored."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What becomes of the trial, and what running it again would need."""

    fate: Fate
    retry: Retry


def consequence(finding: Finding) -> Consequence:
    """Critical findings end a trial; numbers that are not finite leave nothing to score; all else goes on."""
    if finding.severity is not Severity.CRITICAL:
        return Consequence(Fate.KEEP, Retry.NO)
    fate = Fate.FAIL if finding.code is Code.NON_FINITE else Fate.PRUNE
    return Consequence(fate, Retry.NEW_CONFIG)
