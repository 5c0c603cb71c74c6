"""`diagnose`: every curve rule on one run, ordered, and one verdict.

The verdict is the gravest finding; among equally grave ones causes lead consequences (`Code.precedence`). A finding
that another one explains is set aside and listed as such, so that its advice cannot mislead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.health.code import HEADLINES, Code
from sweep.health.evidence import Evidence, RunFacts
from sweep.health.finding import Confidence, Finding, Severity
from sweep.health.findings.critic import critic
from sweep.health.findings.entropy import entropy
from sweep.health.findings.hacking import hacking
from sweep.health.findings.lengths import lengths
from sweep.health.findings.memory_creep import memory_creep
from sweep.health.findings.no_signal import no_signal
from sweep.health.findings.non_finite import non_finite
from sweep.health.findings.oscillation import oscillation
from sweep.health.findings.policy_update import policy_update
from sweep.health.findings.reward_loss import reward_loss
from sweep.health.findings.run_window import run_window
from sweep.health.findings.step_time import step_time
from sweep.health.limits import DEFAULT, Limits
from sweep.health.metric_table import MetricTable
from sweep.health.reading import Reading, readings
from sweep.health.run_length import planned_length
from sweep.health.screen import screen_evidence

RULES: tuple[Callable[[Evidence], tuple[Finding, ...]], ...] = (
    non_finite, screen_evidence, reward_loss, no_signal, entropy, lengths, critic, hacking, oscillation,
    policy_update, step_time, memory_creep, run_window, planned_length,
)  # fmt: skip
"""All rules over curves; adding one is adding it here."""

_STILL = frozenset({Code.REWARD_PLATEAU, Code.REWARD_STALLED, Code.REWARD_CONSTANT, Code.INSUFFICIENT_DATA})
_WEAK = frozenset({Code.GRAD_VANISHING, Code.GRAD_LOW, Code.KL_TOO_LOW})

EXPLAINS: Mapping[Code, frozenset[Code]] = {
    Code.NON_FINITE: _STILL | _WEAK,
    Code.REWARD_ALL_ZERO: _STILL | _WEAK | {Code.ZERO_ADVANTAGE},
    Code.ZERO_ADVANTAGE: _STILL | _WEAK,
    Code.LR_ZERO: _STILL | _WEAK,
    Code.ENTROPY_COLLAPSE: _STILL | _WEAK,
    Code.REWARD_SATURATED: frozenset({Code.KL_TOO_LOW, Code.GRAD_LOW, Code.GRAD_VANISHING}),
    Code.REWARD_DROP: frozenset({Code.INSUFFICIENT_DATA}),
    Code.REWARD_PLATEAU: frozenset({Code.REWARD_CONSTANT}),
}
"""Cause to what follows from it: without a signal a flat reward is no plateau and a tiny gradient not vanishing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one run shows. `findings` come gravest first; `explained` are those that a finding accounts for."""

    findings: tuple[Finding, ...]
    explained: tuple[tuple[Finding, Code], ...]
    readings: tuple[Reading, ...]
    steps: int
    first_step: int | None
    last_step: int | None

    @property
    def leading(self) -> Finding | None:
        """The finding that makes the verdict; None for a run in which nothing is wrong."""
        first = self.findings[0] if self.findings else None
        if first is not None and first.severity is not Severity.INFO:
            return first
        certain = (f for f in self.findings if f.code in HEADLINES and f.confidence is Confidence.HIGH)
        return next(certain, None)

    @property
    def verdict(self) -> str:
        """The name of the leading finding's code, or OK."""
        return self.leading.code.name if self.leading else "OK"

    @property
    def severity(self) -> Severity:
        """The leading finding's severity; info for OK."""
        return self.leading.severity if self.leading else Severity.INFO

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "verdict": self.verdict,
            "severity": self.severity.value,
            "steps": self.steps,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "screen": [r.to_json() for r in self.readings],
            "findings": [f.to_json() for f in self.findings],
            "explained": [{"by": by.name, **f.to_json()} for f, by in self.explained],
        }


def diagnose(table: MetricTable, facts: RunFacts | None = None, limits: Limits = DEFAULT) -> Diagnosis:
    """The diagnosis of a run from what it logged. Total: an empty table gives a diagnosis without findings."""
    evidence = Evidence.of(table, facts, limits)
    with np.errstate(all="ignore"):  # numbers near the largest overflow in a variance, which no rule minds
        found = sorted((f for rule in RULES for f in rule(evidence)), key=_order)
    present = {f.code for f in found}
    causes = {f: _cause(f.code, present) for f in found}
    kept = tuple(f for f in found if causes[f] is None)
    return Diagnosis(
        findings=kept,
        explained=tuple((f, cause) for f in found if (cause := causes[f]) is not None),
        readings=readings(evidence, found),
        steps=len(table),
        first_step=int(table.steps[0]) if len(table) else None,
        last_step=int(table.steps[-1]) if len(table) else None,
    )


def _order(finding: Finding) -> tuple[int, int]:
    return -finding.severity.rank, finding.code.precedence


def _cause(code: Code, present: set[Code]) -> Code | None:
    return next((cause for cause, effects in EXPLAINS.items() if code in effects and cause in present), None)
