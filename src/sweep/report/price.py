"""`price`: what a campaign may still cost, before it starts: trials, hours and GPU-hours a stage, best and worst case.

Times are those that trials of this campaign took; without one they are said to be unknown. Starting verl comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sweep.core.plan import CampaignPlan
from sweep.core.progress import Record
from sweep.core.stage import Stage
from sweep.core.trial import Measure
from sweep.report.columns import columns
from sweep.stages.bounds import bounds


@dataclass(frozen=True, slots=True)
class StagePrice:
    """Trials that a stage has still to run, at the fewest and the most; `frozen` stages need none."""

    stage: str
    fewest: int
    most: int
    steps: int
    measure: Measure = Measure.TRAINING
    frozen: bool = False


def stage_prices(
    plan: CampaignPlan, frozen: Sequence[str], records: Mapping[str, tuple[Record, ...]]
) -> list[StagePrice]:
    """A price a wanted stage, what has ended taken off."""
    return [_priced(plan, plan.stage(name), frozen, records) for name in plan.wanted]


def _priced(
    plan: CampaignPlan, stage: Stage, frozen: Sequence[str], records: Mapping[str, tuple[Record, ...]]
) -> StagePrice:
    if stage.name in frozen:
        return StagePrice(stage.name, 0, 0, stage.budget.steps, stage.measure, frozen=True)
    ended = sum(1 for r in records.get(stage.name, ()) if r.outcome is not None)
    known = max(ended, stage.budget.seeds if _starts_known(plan, stage) else 0)
    fewest, most = bounds(stage, plan.base)
    return StagePrice(stage.name, max(0, fewest - known), max(0, most - known), stage.budget.steps, stage.measure)


def _starts_known(plan: CampaignPlan, stage: Stage) -> bool:
    """Whether the stage's baseline is the winner of the stage before it, run already for as many steps and seeds."""
    before = plan.upstream_of(stage)
    if not before or not stage.knobs:
        return False
    last = plan.stage(before[-1])
    alike = (last.budget.steps, last.budget.seeds) == (stage.budget.steps, stage.budget.seeds)
    return alike and last.measure is stage.measure


def step_seconds(records: Mapping[str, tuple[Record, ...]]) -> dict[Measure, float]:
    """Median seconds a step, or a round, over the finished trials of each kind, all that happens in a trial counted."""
    times: dict[Measure, list[float]] = {}
    for record in (r for found in records.values() for r in found):
        finished = record.finished
        if finished is not None and finished.wall_seconds > 0 and finished.curve.last_step > 0:
            times.setdefault(record.trial.measure, []).append(finished.wall_seconds / finished.curve.last_step)
    return {measure: median(found) for measure, found in times.items()}


def price_text(plan: CampaignPlan, prices: Sequence[StagePrice], seconds: Mapping[Measure, float]) -> str:
    """The table for people."""
    head = ("stage", "trials", "steps", "hours", "GPU-hours")
    rows = [head, *(_row(plan, [p], p.stage, seconds) for p in prices), _row(plan, prices, "all", seconds)]
    return "\n".join([*columns(rows), _pace(plan, seconds), "nothing was started"])


def _pace(plan: CampaignPlan, seconds: Mapping[Measure, float]) -> str:
    if not seconds:
        return "the time of a step is not known before a trial of this campaign has finished: hours cannot be told"
    known = ", ".join(f"{value:.3g} s a step of {measure.value}" for measure, value in seconds.items())
    return f"{known}: medians of this campaign's finished trials; {_at_once(plan.slots)}; starting verl not counted"


def _at_once(slots: int) -> str:
    """How many trials the hours are for."""
    if slots == 0:
        return "as many trials at once as the cluster has room for, the hours are those of one at a time"
    return "one trial at a time" if slots == 1 else f"{slots} trials at once"


def _row(
    plan: CampaignPlan, prices: Sequence[StagePrice], name: str, seconds: Mapping[Measure, float]
) -> tuple[str, ...]:
    if len(prices) == 1 and prices[0].frozen:
        return name, "frozen", "-", "-", "-"
    trials = _span(f"{sum(p.fewest for p in prices)}", f"{sum(p.most for p in prices)}")
    steps = _span(f"{sum(p.fewest * p.steps for p in prices)}", f"{sum(p.most * p.steps for p in prices)}")
    timed = [p for p in prices if p.measure in seconds]
    if not timed:
        return name, trials, steps, "unknown", "unknown"
    unknown = " and unknown" if any(p.most and p.measure not in seconds for p in prices) else ""
    hours = [sum(n * p.steps * seconds[p.measure] for n, p in ends) / 3600 for ends in _ends(timed)]
    gpu_hours = _span(*(f"{h * plan.model.gpus:.2g}" for h in hours)) + unknown if plan.model.needs_gpu else "none"
    return name, trials, steps, _span(*(f"{h / max(1, plan.slots):.2g}" for h in hours)) + unknown, gpu_hours


def _ends(prices: Sequence[StagePrice]) -> tuple[list[tuple[int, StagePrice]], list[tuple[int, StagePrice]]]:
    return [(p.fewest, p) for p in prices], [(p.most, p) for p in prices]


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
