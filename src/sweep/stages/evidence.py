"""Readings of eta: a candidate against the baseline, over as many seeds as the verdict needs and the budget has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.decision import Launch, Wait
from sweep.core.outcome import Finished
from sweep.core.progress import Progress, Proposal
from sweep.core.stage import EtaRule, Stage
from sweep.stages import objective
from sweep.stages.arms import Arm, Measured, interleaved, measure, paired, room
from sweep.stats.bracket import without_rounding
from sweep.stats.efficiency import combined, efficiency, pooled_variance
from sweep.stats.estimate import Spread
from sweep.stats.gain import ROUNDING_SHARE, fitted_gain
from sweep.stats.timing import step_time
from sweep.stats.verdict import Comparison, Verdict, compare


@dataclass(frozen=True, slots=True)
class Reading:
    """What a candidate's trials say: eta with its interval (NaN if unknown), and whether it may replace the baseline.

    `halts` says that the baseline gained nothing, so that no candidate can be read at all.
    """

    eta: float
    better: bool
    reason: str
    low: float = math.nan
    high: float = math.nan
    halts: bool = False
    undecided: bool = False


def read(
    stage: Stage,
    progress: Progress,
    baseline: Arm,
    candidate: Arm,
    *,
    rule: EtaRule,
    earlier: Sequence[Measured] = (),
) -> tuple[Measured, Reading] | Launch | Wait:
    """The candidate's evidence and its reading, or the trials that are still missing for them.

    Arms are paired by seed. With one run an arm left undecided a seed is added to both, while the stage has seeds
    and trials left; the literal rule never adds one. `earlier` arms of the walk lend their spread between seeds;
    later ones may not, since a verdict that was given must not change with what follows it.
    """
    most = 1 if rule.literal else max(1, min(stage.budget.seeds, len(progress.seeds)))
    for seeds in range(1, most + 1):
        base = measure(stage, progress, baseline, seeds)
        arm = measure(stage, progress, candidate, seeds)
        missing = _missing(progress, base, arm)
        if missing is not None:
            if seeds > 1 and isinstance(missing, Launch) and room(stage, progress) < len(missing.proposals):
                return _read_over(stage, progress, baseline, candidate, seeds - 1, rule, earlier)
            return missing
        last = _read_over(stage, progress, baseline, candidate, seeds, rule, earlier)
        if rule.literal or not last[1].undecided:
            return last
    return last


def _read_over(
    stage: Stage,
    progress: Progress,
    baseline: Arm,
    candidate: Arm,
    seeds: int,
    rule: EtaRule,
    earlier: Sequence[Measured],
) -> tuple[Measured, Reading]:
    base = measure(stage, progress, baseline, seeds)
    arm = measure(stage, progress, candidate, seeds)
    assert isinstance(base, Measured) and isinstance(arm, Measured)
    if arm.given_up or (arm.died and not arm.finished):
        return arm, Reading(math.nan, False, f"counts as worse: {'; '.join(arm.died)}")
    point = point_eta(arm.finished[0], base.finished[0], stage.budget.warmup_steps)
    if point is None:
        return arm, Reading(math.nan, False, _no_gain(stage, base.finished[0]), halts=True)
    if rule.literal:
        seen = comparison(stage, arm, base)
        aside = f"; by interval over seeds: {seen.verdict.value}"
        return arm, Reading(point, point > 1.0, f"eta {point:.3f} by the article's literal rule{aside}")
    return arm, _statistical(stage, rule, arm, base, earlier, point)


def point_eta(candidate: Finished, base: Finished, warmup_steps: int) -> float | None:
    """eta of single runs, (dR1 / T1) / (dR0 / T0); None when the baseline gained nothing. Source: S0 section 2.1."""
    base_gain = fitted_gain(base.curve.score).value
    base_seconds = step_time(base.curve.step_seconds, warmup_steps).value
    size = max((abs(v) for v in base.curve.score if math.isfinite(v)), default=0.0)
    if not base_gain > ROUNDING_SHARE * size or not base_seconds > 0:
        return None
    gain = fitted_gain(candidate.curve.score).value
    seconds = step_time(candidate.curve.step_seconds, warmup_steps).value
    return without_rounding((gain / seconds) / (base_gain / base_seconds)) if seconds > 0 else math.nan


def _statistical(
    stage: Stage, rule: EtaRule, arm: Measured, base: Measured, earlier: Sequence[Measured], point: float
) -> Reading:
    seen = comparison(stage, arm, base, earlier)
    return Reading(
        eta=without_rounding(seen.ratio),
        better=seen.verdict is Verdict.BETTER and not arm.broken,
        reason=f"eta {seen.ratio:.3f} ({seen.low:.3f} to {seen.high:.3f}), {seen.verdict.value}: {seen.reason}"
        + _disagreement(rule, seen.verdict, point),
        low=seen.low,
        high=seen.high,
        undecided=seen.verdict is Verdict.NOT_ENOUGH_DATA,
    )


def comparison(
    stage: Stage,
    arm: Measured,
    base: Measured,
    earlier: Sequence[Measured] = (),
    replicates: Sequence[Sequence[Finished]] = (),
) -> Comparison:
    """The verdict on an arm against the baseline, from the seeds that finished in both.

    `earlier` arms of the stage and `replicates` of stages before lend their spread between seeds.
    """
    sides = paired(arm, base)
    others = spread(stage, replicates)
    own = spread(stage, (*sides, *(m.finished for m in earlier))) if earlier or others else None
    interval = efficiency(
        *([f.curve for f in runs] for runs in sides),
        warmup_steps=stage.budget.warmup_steps,
        pooled_variance=combined(own, others),
        gain=objective.gain(stage),
    )
    return compare(interval, looks=max(1, len(sides[0])), max_looks=max(1, stage.budget.seeds))


def spread(stage: Stage, arms: Iterable[Sequence[Finished]]) -> Spread | None:
    """The spread between seeds of the efficiency, from all runs of these arms; None without replicates."""
    curves = [[finished.curve for finished in runs] for runs in arms]
    return pooled_variance(curves, warmup_steps=stage.budget.warmup_steps, gain=objective.gain(stage))


def _disagreement(rule: EtaRule, verdict: Verdict, point: float) -> str:
    """Where the article's literal reading of the first pair of runs would have acted otherwise."""
    literal = "stops" if rule.turn_below <= point <= rule.go_on_above else "moves on"
    told_apart = verdict in (Verdict.BETTER, Verdict.WORSE)
    if told_apart == (literal == "moves on"):
        return ""
    return f" (the article's literal rule reads eta {point:.3f} from one pair of runs and {literal})"


def _missing(progress: Progress, base: Measured | Launch | Wait, arm: Measured | Launch | Wait) -> Launch | Wait | None:
    """What either arm still needs."""
    wanted: list[Proposal] = []
    for side in (base, arm):
        if isinstance(side, Launch):
            wanted.extend(side.proposals)
    if wanted:
        return Launch(interleaved(wanted, progress))
    return Wait() if isinstance(base, Wait) or isinstance(arm, Wait) else None


def no_gain(stage: Stage, base: Measured) -> str:
    """Why no ratio to this arm exists: its first run gained nothing, or cannot be timed; empty if it did."""
    first = base.finished[0]
    return "" if point_eta(first, first, stage.budget.warmup_steps) is not None else _no_gain(stage, first)


def _no_gain(stage: Stage, base: Finished) -> str:
    gain = fitted_gain(base.curve.score).value
    return (
        f"the baseline gained {gain:.3g} reward in {base.curve.last_step} steps, so eta has no meaning; "
        "raise budget.steps, or fix the task, reward or learning rate first"
    )
