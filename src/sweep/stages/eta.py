"""Stage `minibatch`: walks the mini-batch size by the efficiency ratio eta of a candidate against the baseline.

eta = (dR1 / T1) / (dR0 / T0). The first candidate is 0.7 x the baseline; above 1.05 the walk goes on lowering
(x 0.9), under 0.95 it raises (x 1.15), in 0.98-1.02 it has arrived. Source: S0 section 2.1, METHOD section 2.

Where the article is silent the rule is total, and says what it did in the winner's notes:
- [0.95, 0.98) and (1.02, 1.05]: smaller than the change the article acts on, so the walk has arrived;
- a baseline that gained nothing halts the stage: no ratio exists;
- a candidate that lost reward, logged NaN or died is worse: the walk raises;
- a candidate that lands on a measured lattice point, or on the lattice's edge, ends the walk;
- a spent budget ends the walk with what is measured;
- leaving the safe range of +-25 % is allowed and reported;
- where generation takes most of a step, eta says little about the updates, and that is reported.

`literal` takes the article at its word: one run an arm, its point estimate, and the arm where the walk arrived wins.
Otherwise arms are compared by interval over seeds, and the baseline is kept unless an arm is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress
from sweep.core.stage import EtaRule, Stage
from sweep.core.winner import Choice
from sweep.stages.against import against
from sweep.stages.arms import BASELINE, Arm, Measured, measure, room
from sweep.stages.batch_lattice import Batch, batch_of, divisor_batch, nearest_batch, settings_of
from sweep.stages.evidence import Reading, read
from sweep.stages.remarks import remarks
from sweep.stats.timing import rollout_share

ROLLOUT_BOUND = 0.5
"""Share of generation in a step above which the step is bound by rollout. Ours: most of the step."""

ROUNDING = 1e-9
"""Share of a baseline by which a mini-batch at the edge of the range may miss it. Ours."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A candidate of the walk with its reading."""

    mini_batch: int
    measured: Measured
    reading: Reading


def decide(stage: Stage, rule: EtaRule, progress: Progress) -> Decision:
    """The next trials, or the winner once the walk has arrived."""
    start = batch_of(progress.base, stage)
    first = _candidate(stage, rule, start, start.mini_batch * rule.first_factor, start.mini_batch)
    base = measure(stage, progress, BASELINE)
    if not isinstance(base, Measured):
        return _with_first(stage, progress, base, first, start)
    if not base.finished:
        return Halt(f"the baseline did not finish: {'; '.join(base.died)}")
    return _walk(stage, rule, progress, start)


def _walk(stage: Stage, rule: EtaRule, progress: Progress, start: Batch) -> Decision:
    visits: list[Visit] = []
    notes: list[str] = []
    seen = {start.mini_batch}
    requested, current = start.mini_batch * rule.first_factor, start.mini_batch
    while True:
        point = _point(rule, start, requested, current)
        if point.mini_batch in seen:
            notes.append(f"a move to {requested:.4g} lands on {point.mini_batch}, already measured: the walk ends")
            return _freeze(stage, rule, progress, visits, notes, start)
        seen.add(point.mini_batch)
        arm = _candidate(stage, rule, start, requested, current)
        earlier = [v.measured for v in visits]
        step = read(stage, progress, BASELINE, arm, rule=rule, earlier=earlier)
        if isinstance(step, Launch | Wait):
            if isinstance(step, Launch) and room(stage, progress) < len(step.proposals):
                notes.append(f"the budget of {stage.budget.most_trials} trials is spent: the walk ends")
                return _freeze(stage, rule, progress, visits, notes, start)
            return step
        measured, reading = step
        if reading.halts:
            return Halt(reading.reason)
        visits.append(Visit(point.mini_batch, measured, reading))
        notes.append(f"mini-batch {point.mini_batch}: {reading.reason}")
        notes.extend(range_note(rule, start.mini_batch, point.mini_batch))
        factor = move(rule, reading.eta)
        notes.extend(_arrival_note(rule, reading.eta) if factor is None else ())
        if factor is None or _overshot(rule, visits, start):
            return _freeze(stage, rule, progress, visits, notes, start)
        requested, current = point.mini_batch * factor, point.mini_batch


def move(rule: EtaRule, eta: float) -> float | None:
    """The factor of the next move; None when the walk has arrived. NaN counts as worse."""
    if math.isnan(eta) or eta < rule.turn_below:
        return rule.raise_factor
    if eta > rule.go_on_above:
        return rule.lower_factor
    return None


def reading_of_the_article(stage: Stage, rule: EtaRule, progress: Progress, chosen: Arm) -> str:
    """What the article's literal rule does on the trials that are there, and whether it agrees with the choice."""
    literal = replace(rule, literal=True)
    start = batch_of(progress.base, stage)
    arm = _candidate(stage, rule, start, start.mini_batch * rule.first_factor, start.mini_batch)
    base = measure(stage, progress, BASELINE)
    alive = isinstance(base, Measured) and bool(base.finished)
    first = read(stage, progress, BASELINE, arm, rule=literal) if alive else Wait()
    seen = (
        "" if isinstance(first, Launch | Wait) else f" reads eta {first[1].eta:.3f} at {_size(stage, progress, arm)},"
    )
    own = _size(stage, progress, chosen)
    match decide(stage, literal, progress):
        case Freeze(choice):
            would = _size(stage, progress, Arm(choice.settings, choice.requested))
            agrees = "as here" if would == own else f"not {own}"
            return f"the article's literal rule{seen} would freeze {would}, {agrees}"
        case Launch(proposals):
            following = _size(stage, progress, Arm(proposals[0].settings, proposals[0].requested))
            return f"the article's literal rule{seen} would go on to {following}, which was not tried here"
        case Halt(reason):
            return f"the article's literal rule{seen} would halt: {reason}"
        case _:
            return f"the article's literal rule{seen} waits for a trial"


def _size(stage: Stage, progress: Progress, arm: Arm) -> int:
    return batch_of(progress.base.merged(arm.settings), stage).mini_batch


def time_notes(stage: Stage, base: Measured) -> list[str]:
    """What to know of where the baseline's time goes before its time is compared."""
    curves = [finished.curve.since(stage.budget.warmup_steps + 1) for finished in base.finished[:1]]
    return [n for c in curves for n in rollout_note(rollout_share(c.gen_seconds, c.step_seconds))]


def rollout_note(share: float) -> list[str]:
    """What to know where generation takes this share of the baseline's step; empty if it is not most of it."""
    if not share > ROLLOUT_BOUND:
        return []
    return [
        f"generation takes {share:.0%} of a step, and the mini-batch changes only the rest: eta is dominated by "
        "rollout time; run stage token_budget (step 3) before minibatch (step 1)"
    ]


def _overshot(rule: EtaRule, visits: list[Visit], start: Batch) -> bool:
    """Whether going on cannot help: a further lowering is no better than the point before it, or a raise passed
    the baseline and is still worse. The literal rule has no such brake."""
    if rule.literal or len(visits) < 2:
        return False
    last, before = visits[-1], visits[-2]
    lowering = last.mini_batch < before.mini_batch
    if lowering:
        return last.reading.eta <= before.reading.eta
    return last.mini_batch > start.mini_batch and not last.reading.eta > rule.go_on_above


def _freeze(
    stage: Stage, rule: EtaRule, progress: Progress, visits: list[Visit], notes: list[str], start: Batch
) -> Decision:
    base = measure(stage, progress, BASELINE)
    assert isinstance(base, Measured)
    notes += time_notes(stage, base)
    won = _literal_winner(rule, visits) if rule.literal else _best_of(visits)
    chosen = won.measured if won else base
    why = (
        f"mini-batch {won.mini_batch}: {won.reading.reason}"
        if won
        else f"no candidate is better than the baseline of {start.mini_batch}, which is kept"
    )
    return Freeze(
        Choice(
            settings=chosen.arm.settings,
            requested=chosen.arm.requested,
            score=chosen.score,
            baseline_score=base.score,
            trial_ids=_ids([base, *(v.measured for v in visits)]),
            reason=why,
            notes=(*notes, *remarks(stage, progress, base, chosen, [v.measured for v in visits])),
            ratio=against(stage, chosen, base),
        )
    )


def _literal_winner(rule: EtaRule, visits: list[Visit]) -> Visit | None:
    """Where the walk arrived; if it never did, the visit with the highest eta, if that beats the baseline."""
    alive = [v for v in visits if v.measured.feasible]
    if alive and alive[-1] is visits[-1] and move(rule, alive[-1].reading.eta) is None:
        return alive[-1]
    best = max(alive, key=lambda v: v.reading.eta, default=None)
    return best if best and best.reading.eta > 1.0 else None


def _best_of(visits: list[Visit]) -> Visit | None:
    """The visit with the highest eta among those whose interval says better."""
    better = [v for v in visits if v.measured.feasible and v.reading.better]
    return max(better, key=lambda v: v.reading.eta, default=None)


def _with_first(stage: Stage, progress: Progress, base: Launch | Wait, first: Arm, start: Batch) -> Decision:
    """The baseline together with the first candidate, which is always needed: both can run side by side."""
    if isinstance(base, Wait) or first.settings == stage.fixed.merged(settings_of(stage, start)):
        return base
    candidate = measure(stage, progress, first)
    both = base.proposals + (candidate.proposals if isinstance(candidate, Launch) else ())
    return Launch(both[: max(1, room(stage, progress))])


def _point(rule: EtaRule, start: Batch, requested: float, current: int) -> Batch:
    """Where a move from `current` lands, the train batch following or staying as the rule says."""
    return nearest_batch(start, requested) if rule.follow_train_batch else divisor_batch(start, requested, current)


def _candidate(stage: Stage, rule: EtaRule, start: Batch, requested: float, current: int) -> Arm:
    point = _point(rule, start, requested, current)
    asked = Overrides.of({stage.knobs[0].key: round(requested, 2)})
    settings = stage.fixed.merged(settings_of(stage, point))
    return Arm(settings, asked, f"asked for {requested:.4g}, valid {point.mini_batch}")


def _arrival_note(rule: EtaRule, eta: float) -> Iterable[str]:
    if rule.steady_low <= eta <= rule.steady_high:
        yield f"eta is steady within {rule.steady_low:g} to {rule.steady_high:g}: the optimum by S0"
    else:
        yield f"eta {eta:.3f} lies in a gap between S0's bands: the walk ends here"


def range_notes(stage: Stage, rule: EtaRule, progress: Progress, arms: Iterable[Measured]) -> list[str]:
    """What to know of the arms whose mini-batch lies outside the safe range around the stage's baseline."""
    baseline = batch_of(progress.base, stage).mini_batch
    return [n for m in arms for n in range_note(rule, baseline, _size(stage, progress, m.arm))]


def range_note(rule: EtaRule, baseline: int, mini_batch: int) -> Iterable[str]:
    """What to know of a mini-batch outside the safe range; nothing inside. Source: S0 section 1.3."""
    if abs(mini_batch / baseline - 1) > rule.safe_fraction + ROUNDING:
        yield f"mini-batch {mini_batch} is outside the safe range of {baseline} +-{rule.safe_fraction:.0%}"


def _ids(arms: Iterable[Measured]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for m in arms for i in m.trial_ids))
