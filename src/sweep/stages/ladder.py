"""Ladders: named rungs from cheap to dear, tried from where the configuration stands; the best rung wins.

Stage `token_budget` climbs one (token budget and sequences together), and takes the rollout's share of the memory back
where a rung's peak jumps; stage `lr_lambda` walks two, never both at
once: `lam` stays where it is until `lr` is settled. Within the tie margin the cheaper rung wins.
Source: METHOD sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from sweep.core import verl_keys as keys
from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress
from sweep.core.stage import Ladder, LadderRule, Rollback, Rung, Stage
from sweep.core.winner import Choice, Score
from sweep.stages.against import against
from sweep.stages.arms import Arm, Measured, measure, room
from sweep.stages.objective import GEN_SECONDS
from sweep.stages.remarks import remarks, unsteady


@dataclass(frozen=True, slots=True)
class Walked:
    """A finished ladder: where it began, every rung that was measured in ladder order, and the one that won."""

    start: Measured
    rungs: tuple[tuple[str, Measured], ...]
    best: Measured
    notes: tuple[str, ...]


def decide(stage: Stage, rule: LadderRule, progress: Progress) -> Decision:
    """The next rung, or the winner once every ladder is walked."""
    held = Arm(NOTHING, NOTHING, "baseline")
    walked: list[Walked] = []
    for ladder in rule.ladders:
        step = _walk(stage, rule, ladder, progress, held)
        if not isinstance(step, Walked):
            return step
        walked.append(step)
        held = step.best.arm
    return _freeze(stage, progress, walked)


def _walk(
    stage: Stage, rule: LadderRule, ladder: Ladder, progress: Progress, held: Arm
) -> Walked | Launch | Wait | Halt:
    start = measure(stage, progress, held, stage.budget.seeds)
    if not isinstance(start, Measured):
        return start
    if not start.finished:
        return Halt(f"{held.note} did not finish: {'; '.join(start.died)}")
    order = _with_start(ladder, progress.base.merged(held.settings))
    at = next(i for i, rung in enumerate(order) if rung is None)
    seen: dict[int, Measured] = {at: start}
    notes = [ladder.note] if ladder.note else []
    for i in _visits(order, at, ladder.climb):
        if not _worth_trying(ladder, seen, at, i, rule.tie_margin):
            continue
        measured = _measure(stage, rule, progress, _arm(stage, held, order[i]), start)
        if isinstance(measured, Launch) and room(stage, progress) < len(measured.proposals):
            notes.append(f"the budget of {stage.budget.most_trials} trials is spent: ladder {ladder.name} ends")
            break
        if not isinstance(measured, Measured):
            return measured
        seen[i] = measured
    best = _cheapest_of_best(seen, at, rule.tie_margin)
    if not ladder.climb and not beats(seen[best], start, rule.tie_margin) and start.feasible:
        best = at  # rungs without an order of cost: a tie changes nothing
    names = {i: _name(order[i], held) for i in seen}
    notes.extend(f"{ladder.name} {names[i]}: {_describe(seen[i])}" for i in sorted(seen))
    return Walked(start, tuple((names[i], seen[i]) for i in sorted(seen)), seen[best], tuple(notes))


def _measure(stage: Stage, rule: LadderRule, progress: Progress, arm: Arm, start: Measured) -> Measured | Launch | Wait:
    """The rung's evidence; if its memory jumped, that of the rung with the rollout's share taken back."""
    measured = measure(stage, progress, arm, stage.budget.seeds)
    back = rule.rollback
    if back is None or not isinstance(measured, Measured) or not (jump := memory_jump(stage, back, measured, start)):
        return measured
    lower = _taken_back(back, progress.base.merged(arm.settings))
    if lower is None:
        return replace(measured, broken=(*measured.broken, jump))
    settings, name = arm.settings.merged(lower), back.key.rpartition(".")[2]
    again = Arm(settings, settings, f"{arm.note}, {name} taken back to {lower.items[0][1]:g}")
    tried = measure(stage, progress, again, stage.budget.seeds)
    if isinstance(tried, Launch) and room(stage, progress) < len(tried.proposals):
        return replace(measured, broken=(*measured.broken, jump))
    if isinstance(tried, Measured) and (jump := memory_jump(stage, back, tried, start)):
        return replace(tried, broken=(*tried.broken, jump))
    return tried


def memory_jump(stage: Stage, back: Rollback, measured: Measured, start: Measured) -> str:
    """By how much the peak lies over the start's, in words, if that is more than it may; else the empty string."""
    peak, before = _peak(stage, back, measured), _peak(stage, back, start)
    if not before > 0 or not peak > before * (1 + back.rise):
        return ""
    return f"max {back.series} {peak:.4g} is over the start's {before:.4g} by more than {back.rise:.0%}"


def _peak(stage: Stage, back: Rollback, measured: Measured) -> float:
    """The highest value after warm-up over the arm's finished trials; NaN if none was logged."""
    curves = [f.curve.since(stage.budget.warmup_steps + 1) for f in measured.finished]
    return max((v for c in curves for v in getattr(c, back.series) if math.isfinite(v)), default=math.nan)


def _taken_back(back: Rollback, settings: Overrides) -> Overrides | None:
    """The setting one step lower; None at its floor."""
    now = settings.get(back.key, back.unset)
    lower = round(float(now) - back.step, 6) if isinstance(now, int | float) else -math.inf
    return Overrides.of({back.key: lower}) if lower >= back.least else None


def _with_start(ladder: Ladder, base: Overrides) -> list[Rung | None]:
    """The rungs with None at the place where the configuration stands: instead of the rung that equals it, or in
    order of the rungs' first setting."""
    for i, rung in enumerate(ladder.rungs):
        if all(base.get(k) == v for k, v in rung.settings):
            return [*ladder.rungs[:i], None, *ladder.rungs[i + 1 :]]
    place = sum(1 for rung in ladder.rungs if _number(rung.settings.items[0][1]) < _standing(rung, base))
    return [*ladder.rungs[:place], None, *ladder.rungs[place:]]


def _standing(rung: Rung, base: Overrides) -> float:
    """The configuration's own value of the rung's first setting; above every rung if it states none."""
    return _number(base.get(rung.settings.items[0][0], math.inf))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.inf


def _visits(order: list[Rung | None], at: int, climb: bool) -> Iterable[int]:
    """Upwards first, then downwards; every rung if the ladder is not climbed."""
    yield from range(at + 1, len(order))
    yield from range(at - 1, -1, -1)


def _worth_trying(ladder: Ladder, seen: dict[int, Measured], at: int, i: int, margin: float) -> bool:
    """Climbing goes on while the neighbour towards the start improved on the rung before it, and goes down only if
    going up did not help."""
    if not ladder.climb:
        return True
    if i > at:
        return i - 1 in seen and (i - 1 == at or beats(seen[i - 1], seen[i - 2], margin))
    went_up = at + 1 in seen and beats(seen[at + 1], seen[at], margin)
    if went_up or i + 1 not in seen:
        return False
    return i + 1 == at or not beats(seen[i + 2], seen[i + 1], margin)


def beats(a: Measured, b: Measured, margin: float) -> bool:
    """Whether a's score is above b's by more than the margin and by more than their errors allow to tell."""
    if not a.feasible:
        return False
    if not b.feasible:
        return True
    return _above(a.score, b.score, margin)


def _above(a: Score, b: Score, margin: float) -> bool:
    errors = [e for e in (a.standard_error, b.standard_error) if math.isfinite(e)]
    noise = ERRORS_APART * math.hypot(*errors) if errors else 0.0
    return a.value - b.value > max(margin * abs(b.value), noise)


ERRORS_APART = 1.0
"""Combined standard errors by which a dearer rung must lead. Ours: a rung costs little to keep trying, and the
margin of METHOD section 4 is the larger of the two where throughput is scored."""


def _cheapest_of_best(seen: dict[int, Measured], at: int, margin: float) -> int:
    """The lowest rung that none beats; where the configuration stands (`at`) if none of them may win."""
    able = {i: m for i, m in seen.items() if m.feasible} or {at: seen[at]}
    best = max(able, key=lambda i: (able[i].score.value, -i))
    return min(i for i in able if not beats(able[best], able[i], margin))


def _arm(stage: Stage, held: Arm, rung: Rung | None) -> Arm:
    assert rung is not None
    settings = stage.fixed.merged(held.settings).merged(rung.settings)
    return Arm(settings, settings, rung.name)


def _name(rung: Rung | None, held: Arm) -> str:
    return rung.name if rung else held.note


def _describe(measured: Measured) -> str:
    if measured.died and not measured.finished:
        return "; ".join(measured.died)
    broken = f", breaks: {'; '.join(measured.broken)}" if measured.broken else ""
    return f"score {measured.score.value:.5g}{broken}"


def _slower_generation(start: Measured, best: Measured) -> Iterable[str]:
    """What to know of a winner whose generation takes longer than the start's. Source: S1 section 2, it must fall."""
    before, after = (dict(m.score.parts).get(GEN_SECONDS, math.nan) for m in (start, best))
    if after > before:
        yield f"timing_s/gen rose from {before:.4g} s to {after:.4g} s, where it should fall: look at the winner again"


def _freeze(stage: Stage, progress: Progress, walked: list[Walked]) -> Decision:
    last = walked[-1]
    ids = tuple(dict.fromkeys(i for w in walked for _, m in w.rungs for i in m.trial_ids))
    reasons = [
        f"{next(name for name, m in w.rungs if m is w.best)} scored {w.best.score.value:.5g} "
        f"against {w.start.score.value:.5g}"
        for w in walked
    ]
    return Freeze(
        Choice(
            settings=last.best.arm.settings,
            requested=last.best.arm.requested,
            score=last.best.score,
            baseline_score=walked[0].start.score,
            trial_ids=ids,
            reason="; then ".join(reasons),
            notes=(
                *(n for w in walked for n in w.notes),
                *_slower_generation(walked[0].start, last.best),
                *remarks(stage, progress, walked[0].start, last.best, [m for w in walked for _, m in w.rungs]),
                *_before_lam(stage, walked),
            ),
            ratio=against(stage, last.best, walked[0].start),
        )
    )


def _before_lam(stage: Stage, walked: list[Walked]) -> Iterable[str]:
    """Of the ladder that lam's stands on, if that climbed the learning rate."""
    assert isinstance(stage.rule, LadderRule)
    for (before, found), (after, _) in pairwise(zip(stage.rule.ladders, walked, strict=True)):
        if keys.ACTOR_LR in before.rungs[0].settings and keys.LAM in after.rungs[0].settings:
            yield from unsteady(found.best)
