"""`told`: a stage whose score depends on time, and whose trials ran on different kinds of machine, says so.

One baseline took 5.3 s a step on a host and 3.5 s on another with the same GPU: more than most settings change. What a
rule decided from such times is kept, since nothing finished is run again, but nobody shall take it for a measurement.
"""

from __future__ import annotations

from dataclasses import replace

from sweep.core.decision import Freeze
from sweep.core.outcome import Finished
from sweep.core.progress import Progress
from sweep.core.stage import Stage

TIMELESS = frozenset({"reward_in_band", "height_and_smoothness"})
"""Objectives that no time enters; one of the user's may use any."""


def told(stage: Stage, progress: Progress, decision: Freeze) -> Freeze:
    """The decision; its reason names the machines where there are several and the objective uses times."""
    evidence = set(decision.choice.trial_ids)
    machines: dict[str, list[str]] = {}
    for record in progress.records:
        if record.trial.id in evidence and isinstance(record.outcome, Finished) and record.outcome.machine:
            machines.setdefault(record.outcome.machine, []).append(record.trial.id)
    if len(machines) < 2 or stage.objective in TIMELESS:
        return decision
    where = "; ".join(f"{', '.join(trials)} on {machine}" for machine, trials in machines.items())
    remark = f"its times come from different machines and do not compare ({where})"
    choice = replace(decision.choice, reason=f"{decision.choice.reason}; {remark}")
    return replace(decision, choice=choice)
