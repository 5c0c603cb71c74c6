"""A run shorter than the screen's window: what it cannot show yet."""

from __future__ import annotations

from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Finding, Severity


def run_window(evidence: Evidence) -> tuple[Finding, ...]:
    """A note if the log covers fewer steps than the window; it never makes a verdict by itself."""
    table, wanted = evidence.table, evidence.limits.window_steps
    if not len(table) or table.span_steps >= wanted:
        return ()
    return (
        Finding(
            code=Code.SHORT_RUN,
            severity=Severity.INFO,
            metric="step",
            first_step=int(table.steps[0]),
            last_step=int(table.steps[-1]),
            seen=f"{table.span_steps} steps logged; the screen looks at {wanted}",
            advice="trends and plateaus are judged on what is there",
            source="S0 section 1.1",
            figures=(("steps", float(table.span_steps)),),
        ),
    )
