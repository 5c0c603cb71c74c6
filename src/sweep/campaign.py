"""The loop: ask a stage's rule what it needs, carry it out, record it, freeze the winner, go on to the next stage.

Sequences effects and decides nothing: rules are in `sweep.stages`, what follows a failure in
`sweep.core.failure_policy`, which runtime serves a trial in `sweep.fleet`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from sweep.core import failure_policy
from sweep.core.decision import Ask, Freeze, Halt, Launch, Wait
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.plan import CampaignPlan
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.search_terms import search_terms
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.errors import EngineError, StageHalted
from sweep.fleet import Ended, Fleet, FleetEvent, Started, Stepped
from sweep.giving_up import GivingUp
from sweep.health_notes import health_notes
from sweep.ports import Observer, Store
from sweep.purse import Purse, paid_outcomes
from sweep.stages import decide
from sweep.stages import score as score_of
from sweep.stages.memory_bound import MemoryBound
from sweep.standing import refuse_stale, searched_otherwise, start_of

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
"""Longest single wait for events; only bounds how fast an interrupt is noticed."""

MOST_ABANDONED_ATTEMPTS = 10
"""Attempts at a trial whose driver died each time, before the trial itself is suspected. Ours."""

MOST_RULED_OUT = 20
"""Proposals in a row that the sampler may make where memory is known not to suffice; then one is recorded as
infeasible, so that a sampler without a way out uses up its budget instead of going on for ever. Ours."""

MOST_REPEATS = 20
"""Proposals of a sampler in a row that are tried already, before it is asked no more. Ours."""

Screen = Callable[[Trial], str]
"""Says why a trial cannot run, or nothing: it then costs no runtime and is recorded as infeasible."""


@dataclass(frozen=True, slots=True)
class Running:
    """A trial handed to the fleet."""

    stage: Stage
    proposal: Proposal
    trial: Trial


class Campaign:
    """One run over the wanted stages of a plan. Finished trials and frozen stages are taken from the store."""

    def __init__(
        self,
        plan: CampaignPlan,
        *,
        store: Store,
        fleet: Fleet,
        observers: Iterable[Observer] = (),
        screen: Screen = lambda trial: "",
        versions: Mapping[str, str] | None = None,
        purse: Purse | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._fleet = fleet
        self._observers = tuple(observers)
        self._screen = screen
        self._versions = tuple(sorted((versions or {}).items()))
        self._purse = purse or Purse()
        self._running: dict[str, Running] = {}
        self._giving_up = GivingUp(fleet.stop, on=plan.early_stop)
        self._progress, self._repeats = Progress(plan.base, ()), 0
        self._memory = MemoryBound()
        self._ruled_out = 0
        self._idle_faults: Counter[str] = Counter()
        self._own: list[bool] = []
        self._failed_before: dict[str, Record] = {}

    def run(self) -> tuple[Winner, ...]:
        """The winners of the wanted stages, in order.

        Raises:
            StageHalted: if a rule cannot name a winner.
            EngineError: if the environment keeps failing.
            BudgetSpent: if the campaign may not spend more; what finished is kept.
        """
        self._purse.fill(paid_outcomes(self._plan, self._store))
        for sentence in searched_otherwise(self._plan, self._store):
            log.warning("%s", sentence)
        for record in (r for stage in self._plan.stages for r in self._store.records(stage)):
            self._memory.learn(record.trial, record.outcome)
        return tuple(self._stage(self._plan.stage(name)) for name in self._plan.wanted)

    def _stage(self, stage: Stage) -> Winner:
        upstream = self._upstream(stage)
        winners = {w.stage: w for w in self._store.winners()}
        for winner in (*upstream, *(w for w in [winners.get(stage.name)] if w is not None)):
            refuse_stale(self._plan, winner, winners)
        if stage.name in winners:
            return winners[stage.name]
        stands_on = self._plan.stands_on(stage, upstream)
        base = self._plan.base_of(stage, upstream)
        for observer in self._observers:
            observer.stage_started(stage)
        self._progress, self._repeats = start_of(self._plan, self._store, stage, upstream), 0
        self._own.clear()
        self._failed_before = {
            r.trial.id: r for r in self._records(stage) if failure_policy.may_be_tried_again(r.outcome)
        }
        self._take_up_orphans(stage)
        choice = self._search(stage).choice
        choice = replace(choice, notes=(*choice.notes, *health_notes(stage, self._progress, choice)))
        winner = Winner(
            stage=stage.name,
            choice=choice,
            rule=type(stage.rule).__name__,
            seeds=self._plan.seeds_of(stage)[: stage.budget.seeds],
            stands_on=stands_on,
            base=base,
            upstream=tuple((w.stage, w.stands_on) for w in upstream),
            versions=self._versions,
            steps=stage.budget.steps,
            search=search_terms(stage),
        )
        self._store.freeze(winner)
        for observer in self._observers:
            observer.stage_frozen(stage, winner)
        return winner

    def _search(self, stage: Stage) -> Freeze:
        while True:
            progress = self._progress = self._progress.later(self._records(stage))
            decision = decide(stage, progress)
            match decision:
                case Launch(proposals) if self._fleet.room():
                    self._start_next(stage, progress, proposals)
                case Ask(count) if self._fleet.room():
                    asked = self._store.ask(stage, min(count, self._fleet.room()))
                    proposals = tuple(self._complete(stage, progress, p) for p in asked)
                    self._count_repeats(progress, proposals)
                    self._start_all(stage, progress, self._within_memory(stage, progress, proposals))
                case Launch() | Ask() | Wait():
                    self._attend()
                case Freeze():
                    while self._running:
                        self._attend()
                    return decision
                case Halt() if self._failed_before:
                    self._try_again(stage)
                case Halt(reason):
                    raise StageHalted(stage.name, reason)

    def _records(self, stage: Stage) -> tuple[Record, ...]:
        """The stage's trials as it would run them now; those of another base or length are no evidence any more."""
        records, own = self._store.records(stage), self._own
        own += [self._is_own(stage, record) for record in records[len(own) :]]
        return records if all(own) else tuple(compress(records, own))

    def _is_own(self, stage: Stage, record: Record) -> bool:
        return record.trial == trial_of(stage, self._progress.base, proposal_of(record))

    def _try_again(self, stage: Stage) -> None:
        """What failed under an earlier driver for a reason outside the trial runs once more before the stage halts."""
        failed, self._failed_before = self._failed_before, {}
        for record in failed.values():
            self._start(Running(stage, proposal_of(record), record.trial), resume=True)

    def _count_repeats(self, progress: Progress, proposals: Iterable[Proposal]) -> None:
        """A sampler that proposes nothing but what was tried, say of a short range, has no more to propose."""
        for proposal in proposals:
            self._repeats = self._repeats + 1 if progress.arm(proposal.settings) else 0
        if self._repeats >= MOST_REPEATS:
            self._progress = replace(self._progress, exhausted=True)

    def _upstream(self, stage: Stage) -> tuple[Winner, ...]:
        frozen = {w.stage: w for w in self._store.winners()}
        return tuple(frozen[name] for name in self._plan.upstream_of(stage))

    def _complete(self, stage: Stage, progress: Progress, asked: Proposal) -> Proposal:
        """A sampler's proposal with what the stage fixes on every candidate."""
        settings = stage.fixed.merged(asked.settings)
        return Proposal(settings, progress.seeds[0], asked.settings, asked.note, asked.number)

    def _within_memory(self, stage: Stage, progress: Progress, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
        """The proposals that memory is not known to rule out; of the others the sampler hears that they are not run."""
        for proposal in proposals:
            over = self._memory.rules_out(trial_of(stage, progress.base, proposal))
            self._ruled_out = self._ruled_out + 1 if over else 0
            if over is None or self._ruled_out > MOST_RULED_OUT:
                yield proposal
            else:
                self._store.discard(stage, proposal, f"trial {over.id} ran out of gpu memory with no more than this")

    def _start_next(self, stage: Stage, progress: Progress, proposals: Iterable[Proposal]) -> None:
        """As many as there is room for; the rule does not mind in which order, a loaded runtime does."""
        by_trial = {trial_of(stage, progress.base, proposal): proposal for proposal in proposals}
        for trial in self._fleet.next_of(list(by_trial)):
            self._start(Running(stage, by_trial[trial], trial))

    def _start_all(self, stage: Stage, progress: Progress, proposals: Iterable[Proposal]) -> None:
        for proposal in proposals:
            self._start(Running(stage, proposal, trial_of(stage, progress.base, proposal)))

    def _start(self, run: Running, *, resume: bool = False) -> None:
        if run.trial.id in self._running:
            self._store.discard(run.stage, run.proposal, f"trial {run.trial.id} is running already")
            self._attend()
            return
        known = self._store.find(run.trial.id)
        if not isinstance(known, Finished):
            self._purse.check(another=True)
        self._store.intend(run.stage, run.proposal, run.trial)
        if isinstance(known, Finished):
            self._settle(run, replace(known, wall_seconds=0.0))  # paid for where it ran
            return
        for observer in self._observers:
            observer.trial_started(run.stage, run.proposal, run.trial, self.folder(run.trial))
        obstacle = self._obstacle(run.trial)
        if obstacle:
            self._settle(run, Failed(FailureClass.INFEASIBLE_CONFIG, obstacle))
            return
        self._running[run.trial.id] = run
        self._fleet.submit(run.trial, resume=resume)

    def _obstacle(self, trial: Trial) -> str:
        """Why the trial is not worth a runtime, empty if it is."""
        over = self._memory.rules_out(trial)
        if over is None:
            return self._screen(trial)
        return f"trial {over.id} ran out of gpu memory although it needed no more of it"

    def _take_up_orphans(self, stage: Stage) -> None:
        """Go on with what an earlier driver left running where it still runs, and run the rest again.

        What the stage would not run any more stays open: with the settings of its day it is taken up again.
        """
        orphans = [o for o in self._store.orphans() if o.stage == stage.name and self._is_own(stage, o.record)]
        unknown = [o.record.trial for o in orphans if not isinstance(self._store.find(o.record.trial.id), Finished)]
        alive = self._fleet.adopt(unknown)
        for orphan in orphans:
            record = orphan.record
            proposal = proposal_of(record)
            run = Running(stage, proposal, record.trial)
            if record.trial.id in alive:
                self._running[record.trial.id] = run
                for observer in self._observers:
                    observer.trial_started(stage, proposal, record.trial, self.folder(record.trial))
            elif orphan.abandoned < MOST_ABANDONED_ATTEMPTS:
                self._start(run, resume=True)
            else:
                message = f"trial {record.trial.id} was running {orphan.abandoned} times when its driver died"
                self._settle(run, Failed(FailureClass.UNKNOWN, message))

    def folder(self, trial: Trial) -> Path:
        """Where the trial's files go."""
        return trial_folder(self._plan, trial)

    def _attend(self) -> None:
        """Wait for news of the running trials and record all of it, also where one of them meets an error."""
        trouble: Exception | None = None
        for event in self._fleet.wait(WAIT_SECONDS):
            try:
                self._on(event)
            except Exception as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        self._purse.check()

    def _on(self, event: FleetEvent) -> None:
        run = self._running.get(event.trial.id)
        if run is None:
            return
        match event:
            case Started(trial, _, start_seconds):
                self._giving_up.started(trial.id)
                self._purse.started(trial.id, start_seconds)
            case Stepped(trial, step, metrics):
                self._idle_faults.clear()
                self._giving_up.stepped(
                    run.stage,
                    run.proposal.settings,
                    trial,
                    step,
                    metrics,
                    lambda: self._progress.later(self._records(run.stage)),
                )
                for observer in self._observers:
                    observer.stepped(run.stage, trial, step, metrics)
            case Ended(trial, outcome, start_seconds):
                outcome = self._giving_up.ended(trial.id, outcome)
                del self._running[trial.id]
                self._purse.ended(trial.id, outcome, start_seconds)
                self._ended(run, outcome)

    def _ended(self, run: Running, outcome: Outcome) -> None:
        if not isinstance(outcome, Failed):
            self._settle(run, outcome)
            return
        earlier = [f for f in self._store.attempts(run.stage, run.trial.id) if f is not None]
        if outcome.failure_class is FailureClass.ENV_FAULT and outcome.last_step == 0:
            self._idle_faults[run.trial.id] += 1
        match failure_policy.after(outcome, earlier, self._idle_faults[run.trial.id]):
            case failure_policy.Again(wait_seconds):
                self._store.fail_attempt(run.stage, run.trial, outcome)
                for observer in self._observers:
                    observer.attempt_failed(run.stage, run.trial, outcome)
                self._store.intend(run.stage, run.proposal, run.trial)
                self._running[run.trial.id] = run
                self._fleet.submit(run.trial, wait_seconds=wait_seconds, resume=True)
            case failure_policy.Settle():
                self._settle(run, outcome)
            case failure_policy.Break(reason):
                self._store.fail_attempt(run.stage, run.trial, outcome)
                raise EngineError(f"{reason}; mend it and run the same command again: finished trials are kept")

    def _score(self, stage: Stage, finished: Finished) -> Score:
        """As the stage's rule reads it, so that no view shows another number than the winner's file."""
        baselines = self._progress.later(self._records(stage)).arm(NOTHING)
        return score_of(stage, finished, baselines, self._plan.seeds_of(stage))

    def _settle(self, run: Running, outcome: Outcome) -> None:
        """The outcome is recorded, without a score where an objective of the user's fails."""
        score: Score | None = None
        try:
            score = self._score(run.stage, outcome) if isinstance(outcome, Finished) else None
        finally:
            self._store.settle(run.stage, run.trial, outcome, score)
            self._memory.learn(run.trial, outcome)
            for observer in self._observers:
                observer.trial_ended(run.stage, run.trial, outcome, score)


def trial_of(stage: Stage, base: Overrides, proposal: Proposal) -> Trial:
    """What the stage runs for a proposal."""
    return Trial(base.merged(proposal.settings), proposal.seed, stage.budget.steps, stage.measure)


def proposal_of(record: Record) -> Proposal:
    """What the trial was proposed as."""
    return Proposal(record.settings, record.trial.seed, record.requested, record.note)


def trial_folder(plan: CampaignPlan, trial: Trial) -> Path:
    """The folder of a trial's metrics, console and checkpoints: named by its id, never by a value."""
    return Path(plan.folder) / "trials" / trial.id
