"""`screen`: the three metrics over the last 500 steps: reward, KL to the reference, the actor's gradient norm.

Pure: the same call serves a finished log, a trial that is running (hand it the rows so far) and a campaign that looks
back. What the screen cannot see (critic, entropy, lengths, memory) is in `sweep.health.findings`.

Source: S0 section 1.1; METHOD section 6.
"""

from __future__ import annotations

from sweep.health.evidence import Evidence, RunFacts
from sweep.health.finding import Finding
from sweep.health.findings.gradient_band import gradient_band
from sweep.health.findings.kl_band import kl_band
from sweep.health.findings.reward_plateau import plateau
from sweep.health.limits import DEFAULT, Limits
from sweep.health.metric_table import MetricTable


def screen(table: MetricTable, facts: RunFacts | None = None, limits: Limits = DEFAULT) -> tuple[Finding, ...]:
    """What the three metrics show over the last `limits.window_steps` steps; empty if all are healthy."""
    return screen_evidence(Evidence.of(table, facts, limits))


def screen_evidence(evidence: Evidence) -> tuple[Finding, ...]:
    """The screen on evidence that is already there."""
    return (*plateau(evidence), *kl_band(evidence), *gradient_band(evidence))
