"""Arms: the trials of one candidate, over seeds; what is known of it and what is still to run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sweep.core.decision import Launch, Wait
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import Stage
from sweep.core.winner import Score
from sweep.stages import objective
from sweep.stages.objective import UNKNOWN_ORIGIN, Origin


@dataclass(frozen=True, slots=True)
class Arm:
    """A candidate: effective settings (empty: the baseline), what was asked for, and why it is tried."""

    settings: Overrides
    requested: Overrides
    note: str = ""


BASELINE = Arm(NOTHING, NOTHING, "baseline")
"""What the stage starts from, as it is."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An arm whose trials have ended. `finished` is in seed order; empty when every trial died.

    `broken` are constraints broken by any trial, `died` the messages of trials that did not finish, `given_up` those of
    trials that were stopped since they could not win any more. `seeds` are those of `finished`.
    """

    arm: Arm
    finished: tuple[Finished, ...]
    score: Score
    trial_ids: tuple[str, ...]
    broken: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether the arm may win: it has a finite score, kept every constraint and was not given up."""
        scored = bool(self.finished) and math.isfinite(self.score.value)
        return scored and not self.broken and not self.given_up


def paired(one: Measured, other: Measured) -> tuple[list[Finished], list[Finished]]:
    """The trials of both arms on the seeds that finished in both, in the order of the first."""
    theirs = dict(zip(other.seeds, other.finished, strict=True))
    both = [(f, theirs[seed]) for seed, f in zip(one.seeds, one.finished, strict=True) if seed in theirs]
    return [f for f, _ in both], [f for _, f in both]


def measure(
    stage: Stage, progress: Progress, arm: Arm, seeds: int = 1, origin: Origin | None = None
) -> Measured | Launch | Wait:
    """The arm's evidence over its first `seeds` seeds, or what is missing for it; `origin` as in `objective.score`.

    Without one losses are counted by the pace of the baseline's trials on the same seeds.
    A trial that died is not run again here (the failure policy retries before the store settles it).
    """
    missing = lacking(progress, arm, seeds)
    if missing:
        return Launch(missing)
    records = _on_seeds(progress, arm, seeds)
    if any(r.outcome is None for r in records):
        return Wait()
    baselines = [r.finished for r in _on_seeds(progress, BASELINE, seeds) if r.finished is not None]
    return summarize(stage, arm, records, origin or objective.pace_of(stage, baselines), baselines)


def _on_seeds(progress: Progress, arm: Arm, seeds: int) -> list[Record]:
    """The arm's records on its first `seeds` seeds, in their order."""
    by_seed = {r.trial.seed: r for r in progress.arm(arm.settings)}
    return [by_seed[s] for s in progress.seeds[:seeds] if s in by_seed]


def lacking(progress: Progress, arm: Arm, seeds: int) -> tuple[Proposal, ...]:
    """The arm's trials over its first `seeds` seeds that were never started."""
    started = {r.trial.seed for r in progress.arm(arm.settings)}
    wanted = (seed for seed in progress.seeds[:seeds] if seed not in started)
    return tuple(Proposal(arm.settings, seed, arm.requested, arm.note) for seed in wanted)


def interleaved(wanted: Iterable[Proposal], progress: Progress) -> tuple[Proposal, ...]:
    """Seed by seed, so that drift of the machine meets all arms alike, as far as loaded runtimes allow it."""
    return tuple(sorted(wanted, key=lambda p: progress.seeds.index(p.seed)))


def summarize(
    stage: Stage,
    arm: Arm,
    records: Sequence[Record],
    origin: Origin = UNKNOWN_ORIGIN,
    baselines: Sequence[Finished] = (),
) -> Measured:
    """The ended records as evidence; the score is the mean over finished trials.

    `baselines` as in `objective.violations`.
    """
    finished = tuple(r.finished for r in records if r.finished is not None)
    scores = [objective.score(stage, f, origin) for f in finished]
    return Measured(
        arm=arm,
        finished=finished,
        score=mean_score(scores),
        trial_ids=tuple(r.trial.id for r in records),
        broken=tuple(text for f in finished for text in objective.violations(stage, f, baselines)),
        died=tuple(_death(r) for r in records if r.finished is None and r.outcome is not None),
        given_up=tuple(r.outcome.reason for r in records if isinstance(r.outcome, Diverged) and r.outcome.given_up),
        seeds=tuple(r.trial.seed for r in records if r.finished is not None),
    )


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean of independent scores; its error from the errors within each, parts averaged by name."""
    if not scores:
        return Score(math.nan)
    names = [name for name, _ in scores[0].parts]
    parts = tuple((n, fmean(dict(s.parts).get(n, math.nan) for s in scores)) for n in names)
    error = math.sqrt(sum(s.standard_error**2 for s in scores)) / len(scores)
    return Score(fmean(s.value for s in scores), error, parts)


def room(stage: Stage, progress: Progress) -> int:
    """How many more trials the stage may start; what the machine ended for good is not counted against its budget.

    Of such trials as many as the whole budget at most, so that a stage ends whatever the machine does.
    """
    lost = min(progress.index.lost_trials, stage.budget.most_trials)
    return stage.budget.most_trials + lost - len(progress.records)


def _death(record: Record) -> str:
    match record.outcome:
        case Diverged(reason=reason, given_up=given_up):
            return f"trial {record.trial.id} {'was given up' if given_up else 'diverged'}: {reason}"
        case Failed(failure_class) as failed:
            return f"trial {record.trial.id} failed ({failure_class.value}): {failed.said}"
        case _:
            return ""
