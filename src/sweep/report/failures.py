"""`failure_lines`: every failure of a campaign for its final table, failed attempts of trials that went on included."""

from __future__ import annotations

from sweep.core.outcome import Diverged, Failed
from sweep.core.plan import CampaignPlan
from sweep.core.progress import Record
from sweep.core.stage import Stage
from sweep.ports import Store


def failure_lines(plan: CampaignPlan, store: Store) -> list[str]:
    """A line a failure, in the order of the stages that were begun and of their trials."""
    frozen = {winner.stage for winner in store.winners()}
    open_stage = next((name for name in plan.wanted if name not in frozen), None)
    begun = [stage for stage in plan.stages if stage.name in frozen or stage.name == open_stage]
    return [line for stage in begun for record in store.records(stage) for line in _of_trial(store, stage, record)]


def ended_badly(record: Record) -> str:
    """How the trial failed, empty if it did not."""
    match record.outcome:
        case Failed(failure_class) as failed:
            return f"{record.trial.id} ({failure_class.value}): {failed.said}"
        case Diverged(reason=reason, given_up=False):
            return f"{record.trial.id} diverged: {reason}"
        case _:
            return ""


def _of_trial(store: Store, stage: Stage, record: Record) -> list[str]:
    attempts = store.attempts(stage, record.trial.id)
    earlier = attempts[:-1] if isinstance(record.outcome, Failed) else attempts
    lines = [
        f"failed in {stage.name}, attempt {number}: {record.trial.id} ({f.failure_class.value}): {f.said}"
        for number, f in enumerate(earlier, start=1)
        if f is not None
    ]
    settled = ended_badly(record)
    how = "failed" if isinstance(record.outcome, Failed) else "stopped"
    return [*lines, f"{how} in {stage.name}: {settled}"] if settled else lines
