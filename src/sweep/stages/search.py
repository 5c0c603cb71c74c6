"""Search: the baseline, the given start values, then whatever the stage's Optuna sampler proposes.

Stage `kl` searches the starting coefficient this way with the band controller switched on in every candidate
(`Stage.fixed`), so that coefficient and controller are frozen together. Source: METHOD section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sweep.core.decision import Ask, Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.winner import Choice
from sweep.stages.against import against
from sweep.stages.arms import BASELINE, Arm, Measured, interleaved, lacking, measure, room
from sweep.stages.ladder import beats

ROUNDING = 1e-9
"""Share of a score by which equal trials may differ for the order in which their numbers were added. Ours."""


def decide(stage: Stage, rule: SearchRule, progress: Progress) -> Decision:
    """The next candidates; once the budget is spent, the best of them that beats the baseline, or the baseline.

    Before that it looks at nothing but arms that lack a trial: a decision costs the same however many there are.
    """
    given = _given_arms(stage, rule)
    arms = progress.index.arms
    if len(arms) + sum(1 for settings in given if settings not in arms) < _most_arms(stage, progress):
        missing = _missing(stage, progress, given)[: room(stage, progress)]
        if missing or not progress.exhausted:
            return Launch(interleaved(missing, progress)) if missing else Ask(1)
    known = _known_arms(stage, rule, progress)
    steps = [measure(stage, progress, arm, stage.budget.seeds) for arm in known]
    missing = tuple(p for step in steps if isinstance(step, Launch) for p in step.proposals)
    if missing and room(stage, progress) > 0:
        return Launch(interleaved(missing[: room(stage, progress)], progress))
    if progress.running:
        return Wait()
    measured = [step for step in steps if isinstance(step, Measured)]
    if not measured or not measured[0].finished:
        return Halt(f"the baseline did not finish: {'; '.join(measured[0].died) if measured else 'no trial ended'}")
    return _freeze(stage, rule, measured)


def _given_arms(stage: Stage, rule: SearchRule) -> dict[Overrides, Arm]:
    """Baseline and start values by their settings, each once."""
    found = {BASELINE.settings: BASELINE}
    for start in rule.start:
        settings = stage.fixed.merged(start)
        found.setdefault(settings, Arm(settings, start, "start value"))
    return found


def _missing(stage: Stage, progress: Progress, given: Mapping[Overrides, Arm]) -> tuple[Proposal, ...]:
    """The trials that arms known so far still lack: given ones first, then those of the sampler."""
    thin = [s for s in progress.index.with_fewer_seeds(stage.budget.seeds) if s not in given]
    arms = [*given.values(), *(_arm_of(progress.arm(settings)[0]) for settings in thin)]
    return tuple(p for arm in arms for p in lacking(progress, arm, stage.budget.seeds))


def _known_arms(stage: Stage, rule: SearchRule, progress: Progress) -> list[Arm]:
    """Baseline, start values, and what the sampler proposed, each once, at most as many as the budget has arms."""
    given = _given_arms(stage, rule)
    asked = [_arm_of(progress.arm(settings)[0]) for settings in progress.index.arms if settings not in given]
    return [*given.values(), *asked][: _most_arms(stage, progress)]


def _most_arms(stage: Stage, progress: Progress) -> int:
    """The budget's arms, and as many more as the machine took away, up to the budget once more."""
    return stage.budget.trials + min(progress.index.lost_arms, stage.budget.trials)


def _arm_of(record: Record) -> Arm:
    return Arm(record.settings, record.requested, record.note)


def _freeze(stage: Stage, rule: SearchRule, arms: list[Measured]) -> Decision:
    base, candidates = arms[0], [m for m in arms[1:] if m.feasible]
    best = _best(candidates)
    chosen = best if best and beats(best, base, rule.tie_margin) else base
    return Freeze(
        Choice(
            settings=chosen.arm.settings,
            requested=chosen.arm.requested,
            score=chosen.score,
            baseline_score=base.score,
            trial_ids=tuple(dict.fromkeys(i for m in arms for i in m.trial_ids)),
            reason=_reason(rule, base, chosen, arms[1:]),
            notes=tuple(_describe(stage, m) for m in arms),
            ratio=against(stage, chosen, base),
        )
    )


def _reason(rule: SearchRule, base: Measured, chosen: Measured, others: Sequence[Measured]) -> str:
    standing = f"the baseline's {base.score.value:.5g}"
    if chosen is not base:
        return f"score {chosen.score.value:.5g} against {standing}"
    if others and not any(m.feasible for m in others):
        broke = sum(bool(m.broken) for m in others)
        barred = f"of {len(others)} candidates {broke} broke a constraint, {len(others) - broke} died or have no score"
        return f"no candidate may win: {barred}; {standing} is kept"
    return f"no candidate beats {standing} by more than {rule.tie_margin:.0%}; it is kept"


def _best(candidates: Sequence[Measured]) -> Measured | None:
    """The highest score; of those that only rounding tells apart, the one that was tried first."""
    top = max((m.score.value for m in candidates), default=math.nan)
    return next((m for m in candidates if math.isclose(m.score.value, top, rel_tol=ROUNDING)), None)


def _describe(stage: Stage, measured: Measured) -> str:
    values = ", ".join(f"{k.key.rsplit('.', 1)[-1]} {_shown(measured, k.key)}" for k in stage.knobs)
    if not measured.finished:
        return f"{values}: {'; '.join(measured.died)}"
    parts = ", ".join(f"{n} {v:.4g}" for n, v in measured.score.parts if math.isfinite(v))
    broken = f", breaks: {'; '.join(measured.broken)}" if measured.broken else ""
    return f"{values}: score {measured.score.value:.5g} ({parts}){broken}"


def _shown(measured: Measured, key: str) -> str:
    value = measured.arm.settings.get(key)
    return f"{value:.4g}" if isinstance(value, float) else ("as before" if value is None else str(value))
