"""`price`: what a campaign may still cost, before it starts: trials, hours and GPU-hours a stage, best and worst case.

Times are those of trials of this campaign, or of an earlier one that count here; without one they are said to be
unknown. Starting verl comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sweep.core.plan import CampaignPlan
from sweep.core.progress import Record
from sweep.core.stage import Stage
from sweep.core.trial import Measure
from sweep.report.columns import columns
from sweep.stages.bounds import bounds


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a stage has before this run. `known`: trials that need not be run, with those of an earlier campaign.

    `settled`: by them alone the rule names its winner. `stale`: why the run would refuse the stage, by its own winner
    or one before it. `awaits`: winners that this run makes first and that a frozen one must find as they were.
    """

    frozen: bool = False
    known: tuple[Record, ...] = ()
    settled: bool = False
    stale: str = ""
    awaits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagePrice:
    """Trials that a stage has still to run, at the fewest and the most; `frozen` and `stale` stages run none."""

    stage: str
    fewest: int
    most: int
    steps: int
    measure: Measure = Measure.TRAINING
    frozen: bool = False
    stale: str = ""
    awaits: tuple[str, ...] = ()


def stage_prices(plan: CampaignPlan, outlooks: Mapping[str, Outlook]) -> list[StagePrice]:
    """A price a wanted stage, what is known taken off."""
    return [_priced(plan, plan.stage(name), outlooks.get(name, Outlook())) for name in plan.wanted]


def _priced(plan: CampaignPlan, stage: Stage, outlook: Outlook) -> StagePrice:
    price = StagePrice(
        stage.name, 0, 0, stage.budget.steps, stage.measure, outlook.frozen, outlook.stale, outlook.awaits
    )
    if outlook.frozen or outlook.stale or outlook.settled:
        return price
    known = max(len(outlook.known), stage.budget.seeds if _starts_known(plan, stage) else 0)
    fewest, most = bounds(stage, plan.base)
    return replace(price, fewest=max(0, fewest - known), most=max(0, most - known))


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


def price_text(
    plan: CampaignPlan, prices: Sequence[StagePrice], seconds: Mapping[Measure, float], spent_gpu_hours: float = 0.0
) -> str:
    """The table for people, and under it what the run would meet: winners that are stale, a budget with a limit."""
    head = ("stage", "trials", "steps", "hours", "GPU-hours")
    rows = [head, *(_row(plan, [p], p.stage, seconds) for p in prices), _row(plan, prices, "all", seconds)]
    return "\n".join(
        [
            *columns(rows),
            *_standing(prices),
            _pace(plan, seconds),
            *_budget(plan, spent_gpu_hours),
            "nothing was started",
        ]
    )


def _standing(prices: Sequence[StagePrice]) -> list[str]:
    """What keeps a frozen winner from being used, first of all where the run would stop."""
    stale = [f"the run would stop at {p.stage}: stale: {p.stale}" for p in prices if p.stale]
    open_ended = [p for p in prices if p.awaits and not p.stale]
    return stale[:1] + [f"{p.stage} stays frozen only if {', '.join(p.awaits)} ends as before" for p in open_ended]


def _budget(plan: CampaignPlan, spent_gpu_hours: float) -> list[str]:
    """The limit at which the run would stop, and how much of it is gone."""
    if plan.gpu_hours is None:
        return []
    counted = "" if plan.model.needs_gpu else "; without a GPU an hour of a trial counts as one"
    return [f"budget.gpu_hours={plan.gpu_hours:g}, {spent_gpu_hours:.2g} spent{counted}"]


def _pace(plan: CampaignPlan, seconds: Mapping[Measure, float]) -> str:
    of = f"{plan.name} or {plan.earlier}" if plan.earlier else "this campaign"
    if not seconds:
        return f"the time of a step is not known before a trial of {of} has finished: hours cannot be told"
    known = ", ".join(f"{value:.3g} s a step of {measure.value}" for measure, value in seconds.items())
    return f"{known}: medians of finished trials of {of}; {_at_once(plan.slots)}; starting verl not counted"


def _at_once(slots: int) -> str:
    """How many trials the hours are for."""
    if slots == 0:
        return "as many trials at once as the cluster has room for, the hours are those of one at a time"
    return "one trial at a time" if slots == 1 else f"{slots} trials at once"


def _row(
    plan: CampaignPlan, prices: Sequence[StagePrice], name: str, seconds: Mapping[Measure, float]
) -> tuple[str, ...]:
    if len(prices) == 1 and (prices[0].stale or prices[0].frozen):
        return name, "stale" if prices[0].stale else "frozen", "-", "-", "-"
    trials = _span(f"{sum(p.fewest for p in prices)}", f"{sum(p.most for p in prices)}")
    steps = _span(f"{sum(p.fewest * p.steps for p in prices)}", f"{sum(p.most * p.steps for p in prices)}")
    timed = [p for p in prices if p.measure in seconds]
    if not timed:
        return name, trials, steps, "unknown", "unknown"
    unknown = " and unknown" if any(p.most and p.measure not in seconds for p in prices) else ""
    hours = [sum(n * p.steps * seconds[p.measure] for n, p in ends) / 3600 for ends in _ends(timed)]
    gpu_hours = _span(*(f"{h * plan.model.gpus:.2g}" for h in hours)) + unknown if plan.counts_gpu_hours else "none"
    return name, trials, steps, _span(*(f"{h / max(1, plan.slots):.2g}" for h in hours)) + unknown, gpu_hours


def _ends(prices: Sequence[StagePrice]) -> tuple[list[tuple[int, StagePrice]], list[tuple[int, StagePrice]]]:
    return [(p.fewest, p) for p in prices], [(p.most, p) for p in prices]


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
