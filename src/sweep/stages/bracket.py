"""Bracket: every knob of a stage walked to its peak, one after the other, the winner of one held while the next moves.

One run a value (`budget.seeds` runs if there are more); the peak of the parabola through all of them wins as it looks.
On simulated tasks with a known truth this ends within 2 % of the best more often than any rule or tuner that keeps
single runs (docs/decisions.md); what it cannot say is whether the winner is really better. That is said once, for the
whole campaign, by `sweep.stages.confirm`; or knob by knob with `prove`, which keeps a value unless the peak is *better*
by interval over the stage's seeds, at twice the price and for fewer good winners.

For the mini-batch the article's literal rule is read on the same trials, and what it would have done is in the notes.
Total like every rule: a value that died or broke a constraint scores lowest, a spent budget ends the walk with what is
measured, a baseline that died or gained nothing halts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sweep.core import verl_keys as keys
from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, EtaRule, Knob, Stage
from sweep.core.winner import Choice
from sweep.stages import eta, objective
from sweep.stages.against import against, estimates
from sweep.stages.arms import BASELINE, Arm, Measured, interleaved, measure, room
from sweep.stages.axis import Axis, short
from sweep.stages.evidence import no_gain
from sweep.stages.objective import UNKNOWN_ORIGIN, Origin
from sweep.stages.remarks import remarks, unsteady
from sweep.stats.bracket import TIE_DIGITS, Probe, Settled, advance, without_rounding
from sweep.stats.efficiency import pooled_spread, ratio
from sweep.stats.verdict import Comparison, Verdict, compare


@dataclass(frozen=True, slots=True)
class Walked:
    """A knob's walk: where it began and ended, every value measured in the order of the values, and what was noted."""

    start: Measured
    best: Measured
    values: tuple[Measured, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Desk:
    """What a decision is made from; `origin` is what the baselines say of every trial."""

    stage: Stage
    rule: BracketRule
    progress: Progress
    origin: Origin = UNKNOWN_ORIGIN

    @property
    def seeds(self) -> int:
        """Seeds a value: one where the peak is proven afterwards."""
        return 1 if self.rule.prove else self.stage.budget.seeds

    def measure(self, arm: Arm) -> Measured | Launch | Wait:
        """The arm's evidence over its seeds, or what is missing for it."""
        return measure(self.stage, self.progress, arm, self.seeds, self.origin)

    def axis(self, knob: Knob, held: Arm) -> Axis:
        """The knob around the arm that is held."""
        return Axis(self.stage, self.rule, knob, held, self.progress.base)

    def shown(self, knob: Knob, measured: Measured) -> str:
        """The knob and its value in an arm."""
        value = self.progress.base.merged(measured.arm.settings).get(knob.key)
        return f"{short(knob)} {f'{value:g}' if isinstance(value, int | float) else 'as before'}"


def decide(stage: Stage, rule: BracketRule, progress: Progress) -> Decision:
    """The next values, or the winner once every knob has settled."""
    desk = _Desk(stage, rule, progress)
    base = desk.measure(BASELINE)
    if not isinstance(base, Measured):
        return _opening(desk)
    if not base.finished:
        return Halt(f"the baseline did not finish: {'; '.join(base.died)}")
    if stage.knobs[0].key == keys.MINI_BATCH and (why := no_gain(stage, base)):
        return Halt(why)
    desk = replace(desk, origin=origin(stage, rule, progress.arm(NOTHING), progress.seeds))
    held = BASELINE
    walks: list[Walked] = []
    for knob in stage.knobs:
        step = _walk(desk, knob, held)
        if not isinstance(step, Walked):
            return step
        walks.append(step)
        held = step.best.arm
    base = desk.measure(BASELINE)
    assert isinstance(base, Measured)
    return _freeze(desk, base, walks)


def origin(stage: Stage, rule: BracketRule, baselines: Iterable[Record], seeds: Sequence[int]) -> Origin:
    """What the baselines that finished say of every trial; nothing is known without one."""
    counted = seeds[: 1 if rule.prove else stage.budget.seeds]
    return objective.origin_of(stage, [r.finished for r in baselines if r.trial.seed in counted and r.finished])


def _walk(desk: _Desk, knob: Knob, held: Arm) -> Walked | Launch | Wait:
    axis = desk.axis(knob, held)
    seen: dict[float, Measured] = {}
    while True:
        found = _next(axis, desk.rule, seen)
        if isinstance(found, Settled):
            return _ended(desk, axis, seen, found)
        measured = desk.measure(axis.arm(found.position, found.aimed))
        if isinstance(measured, Launch) and room(desk.stage, desk.progress) < len(measured.proposals):
            return _ended(desk, axis, seen, _with_what_is_there(axis, desk.rule, seen), spent=True)
        if not isinstance(measured, Measured):
            return measured
        seen[found.position] = measured


def _ended(
    desk: _Desk, axis: Axis, seen: dict[float, Measured], found: Settled | None, *, spent: bool = False
) -> Walked | Launch | Wait:
    """The walk with its winner; the held arm where too few values were measured, or where the peak is not proven."""
    before = desk.measure(axis.held)
    if not isinstance(before, Measured):
        return before
    values = tuple(seen[x] for x in sorted(seen))
    notes = [*([axis.outside] if axis.outside else []), *(_described(desk, axis.knob, m) for m in values)]
    if spent:
        most = desk.stage.budget.most_trials
        notes.append(f"the budget of {most} trials is spent: {short(axis.knob)} is walked no further")
    if found is None:
        return Walked(before, before, values, tuple(notes))
    best = seen[found.position]
    if not best.feasible:
        notes.append(f"no value of {short(axis.knob)} can win: {desk.shown(axis.knob, before)} stays")
        return Walked(before, before, values, tuple(notes))
    if _beaten_from_outside(axis, before, best, values):
        notes.append(
            f"{desk.shown(axis.knob, before)} is no value of this walk and stays: it scored {before.score.value:.5g} "
            f"against {best.score.value:.5g} of {desk.shown(axis.knob, best)}"
        )
        return Walked(before, before, values, tuple(notes))
    walked = Walked(before, best, values, (*notes, f"settled at {desk.shown(axis.knob, best)}: {found.reason}"))
    proven = not desk.rule.prove or best.arm.settings == axis.held.settings
    return walked if proven else _proved(desk, walked)


def _beaten_from_outside(axis: Axis, before: Measured, best: Measured, values: Sequence[Measured]) -> bool:
    """Whether the held arm, by its value no part of the walk, scored more than the walk's peak."""
    walked = any(v.arm.settings == before.arm.settings for v in values)
    return axis.comparable and not walked and before.feasible and before.score.value > best.score.value


def _next(axis: Axis, rule: BracketRule, seen: dict[float, Measured], most: int | None = None) -> Probe | Settled:
    return advance(
        _heights(seen.items()),
        start=axis.start,
        step=axis.step,
        low=axis.low,
        high=axis.high,
        most_points=rule.most_points if most is None else most,
        near_share=rule.near_share,
        snap=axis.snap,
    )


def _with_what_is_there(axis: Axis, rule: BracketRule, seen: dict[float, Measured]) -> Settled | None:
    """The best of the values measured so far; None if there are too few to prefer any."""
    found = _next(axis, rule, seen, most=len(seen)) if len(seen) > 1 else None
    return found if isinstance(found, Settled) else None


def _heights(seen: Iterable[tuple[float, Measured]]) -> dict[float, float]:
    """Position to the logarithm of its score, or to the score itself where not all are positive; NaN for a dead one."""
    scores = {x: m.score.value if m.feasible else math.nan for x, m in seen}
    if all(v > 0 for v in scores.values() if math.isfinite(v)):
        return {x: round(math.log(v), TIE_DIGITS) if math.isfinite(v) else math.nan for x, v in scores.items()}
    return {x: without_rounding(v) for x, v in scores.items()}


def _opening(desk: _Desk) -> Launch | Wait:
    """The baseline, the first knob's start and its first move, which are always needed: they can run side by side."""
    axis = desk.axis(desk.stage.knobs[0], BASELINE)
    first = advance({axis.start: 0.0}, start=axis.start, step=axis.step, low=axis.low, high=axis.high, snap=axis.snap)
    aimed = first.aimed if isinstance(first, Probe) else None
    arms = dict.fromkeys((BASELINE, axis.arm(axis.start), axis.arm(first.position, aimed)))
    steps = [desk.measure(arm) for arm in arms]
    missing = [p for step in steps if isinstance(step, Launch) for p in step.proposals]
    most = max(1, room(desk.stage, desk.progress))
    return Launch(interleaved(missing[:most], desk.progress)) if missing else Wait()


def _proved(desk: _Desk, walked: Walked) -> Walked | Launch | Wait:
    """The walk with the held value as its best unless the peak is better by interval."""
    stage, progress = desk.stage, desk.progress
    most = max(1, min(stage.budget.seeds, len(progress.seeds)))
    seen: Comparison | None = None
    for seeds in range(1, most + 1):
        sides = [measure(stage, progress, m.arm, seeds) for m in (walked.best, walked.start)]
        wanted = interleaved((p for s in sides if isinstance(s, Launch) for p in s.proposals), progress)
        if wanted and room(stage, progress) < len(wanted):
            break
        if wanted:
            return Launch(wanted)
        arms = [s for s in sides if isinstance(s, Measured)]
        if len(arms) < len(sides):
            return Wait()
        seen = compared(stage, arms[0], arms[1], looks=seeds, most=most)
        if seen.verdict is not Verdict.NOT_ENOUGH_DATA:
            break
    better = seen is not None and seen.verdict is Verdict.BETTER
    why = f"{seen.ratio:.3f} ({seen.low:.3f} to {seen.high:.3f}), {seen.verdict.value}" if seen else "no trials left"
    note = f"against the value held before: {why}" + ("" if better else "; that value is kept")
    return Walked(walked.start, walked.best if better else walked.start, walked.values, (*walked.notes, note))


def compared(stage: Stage, arm: Measured, other: Measured, *, looks: int, most: int) -> Comparison:
    """The verdict on the ratio of two arms' scores, paired by seed."""
    sides = estimates(stage, arm, other)
    return compare(ratio(*sides, pooled_variance=pooled_spread(sides)), looks=looks, max_looks=most)


def _freeze(desk: _Desk, base: Measured, walks: list[Walked]) -> Freeze:
    best = walks[-1].best
    ids = [i for m in (base, *(v for w in walks for v in w.values)) for i in m.trial_ids]
    reasons = [_compared(desk, knob, w) for knob, w in zip(desk.stage.knobs, walks, strict=True)]
    return Freeze(
        Choice(
            settings=best.arm.settings,
            requested=best.arm.requested,
            score=best.score,
            baseline_score=base.score,
            trial_ids=tuple(dict.fromkeys(ids)),
            reason="; then ".join(reasons)
            + ("" if desk.rule.prove or best.arm == BASELINE else "; as it looks, confirmed by no other seeds yet"),
            notes=(
                *(n for w in walks for n in w.notes),
                *_safe_range(desk, walks),
                *_article(desk, best),
                *_time(desk, base),
                *_remarks(desk, base, walks),
            ),
            ratio=against(desk.stage, best, base, desk.origin),
        )
    )


def _compared(desk: _Desk, knob: Knob, walked: Walked) -> str:
    """Where the knob ended, and what that says of where it began."""
    best, before = walked.best, walked.start
    if best.arm.settings == before.arm.settings:
        return f"{desk.shown(knob, best)} stays, scored {best.score.value:.5g}{_all_broken(walked)}"
    if not best.score.value < before.score.value:
        why = ""
    elif any(v.arm.settings == before.arm.settings for v in walked.values):
        why = ", less in this run but the peak of the parabola through all of them"
    else:
        why = ", less in this run; the former is no value of this walk, all of which the stage gives its fixed settings"
    return f"{desk.shown(knob, best)} scored {best.score.value:.5g} against {before.score.value:.5g}{why}"


def _safe_range(desk: _Desk, walks: list[Walked]) -> tuple[str, ...]:
    """Which measured mini-batches lie outside the article's safe range around the stage's baseline."""
    if desk.stage.knobs[0].key != keys.MINI_BATCH:
        return ()
    rule = desk.rule.article or EtaRule()
    return tuple(eta.range_notes(desk.stage, rule, desk.progress, walks[0].values))


def _all_broken(walked: Walked) -> str:
    """That no value was free to win, the one that is held included, if so: nothing was really compared."""
    tried = (walked.start, *walked.values)
    if not all(m.broken for m in tried):
        return ""
    return f", though every value tried, itself included, breaks a constraint ({'; '.join(walked.start.broken)})"


def _article(desk: _Desk, best: Measured) -> tuple[str, ...]:
    """What the article's literal rule does on the same trials."""
    if desk.rule.article is None or desk.stage.knobs[0].key != keys.MINI_BATCH:
        return ()
    return (eta.reading_of_the_article(desk.stage, desk.rule.article, desk.progress, best.arm),)


def _time(desk: _Desk, base: Measured) -> tuple[str, ...]:
    """Where the time goes that mini-batches are compared by."""
    return tuple(eta.time_notes(desk.stage, base)) if desk.stage.knobs[0].key == keys.MINI_BATCH else ()


def _remarks(desk: _Desk, base: Measured, walks: list[Walked]) -> tuple[str, ...]:
    said = remarks(desk.stage, desk.progress, base, walks[-1].best, [v for w in walks for v in w.values])
    before_lam = pairwise(zip(desk.stage.knobs, walks, strict=True))
    rates = [w.best for (knob, w), (after, _) in before_lam if (knob.key, after.key) == (keys.ACTOR_LR, keys.LAM)]
    return (*said, *(note for best in rates for note in unsteady(best)))


def _described(desk: _Desk, knob: Knob, measured: Measured) -> str:
    where = desk.shown(knob, measured)
    if not measured.finished:
        return f"{where}: {'; '.join(measured.died)}"
    broken = f", breaks: {'; '.join(measured.broken)}" if measured.broken else ""
    return f"{where}: {desk.stage.objective} {measured.score.value:.5g}{broken}"
