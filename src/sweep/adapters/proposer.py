"""`Proposer`: an Optuna sampler on a copy in memory of what it should learn from; `worth_learning` bounds the copy.

The stored study is never asked, only told. So a proposal that was not begun leaves no trace, a driver that resumes
draws what the killed one would have drawn, and a draw costs the same however many trials there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sweep.adapters.search_space import distributions, parameters, sampler, unusable
from sweep.core.failure_policy import OF_THE_POINT
from sweep.core.outcome import Diverged, Failed, Outcome
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.winner import Score

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

LEARNED_TRIALS = 100
"""How many best and how many latest trials a new copy holds. Ours: a draw of TPE took 3 ms at 10 trials, 4 at 500,
7 at 1,000 and ever more beyond; its model of the good takes 25 trials at most, so that older ones teach it nothing."""

FULL_TRIALS = 3 * LEARNED_TRIALS
"""Size at which a copy is replaced by a new one. Ours."""


class Learnable(Protocol):
    """What `worth_learning` looks at."""

    record: Record
    score: Score | None


AnyLearnable = TypeVar("AnyLearnable", bound=Learnable)


class Proposer:
    """The sampler of one stage. `study_state` is what the sampler left at the stored study."""

    def __init__(self, stage: Stage, rule: SearchRule, seed: int, study_state: Mapping[str, Any]) -> None:
        import optuna

        self._stage, self._rule, self._seed = stage, rule, seed
        self._space = distributions(stage)
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage, direction="maximize", sampler=sampler(stage, rule, seed)
        )
        self._study_id = self._storage.get_study_id_from_name(self._study.study_name)
        for key, value in study_state.items():
            self._storage.set_study_system_attr(self._study_id, key, value)
        self._asked: dict[int, Trial] = {}
        self._dropped = 0
        self._ids: dict[str, int] = {}
        self._size = 0

    @property
    def full(self) -> bool:
        """True if a smaller copy should take over."""
        return self._size >= FULL_TRIALS and not self._asked

    def ask(self, draws: int) -> Proposal:
        """The sampler's next point, seeded from the campaign's seed and `draws`, the trials begun so far.

        Points dropped since the last begin count as well, or the same one would come again.

        Raises:
            ConfigError: if the sampler cannot draw from these ranges, or needs a package that is not installed.
        """
        self._study.sampler = sampler(self._stage, self._rule, self._seed, draws + len(self._asked), self._dropped)
        try:
            asked = self._study.ask(self._space)
        except Exception as error:  # as in `try_out`
            raise unusable(self._stage, self._rule, error) from None
        self._size += 1
        self._asked[asked.number] = asked
        values = Overrides.of(asked.params)
        return Proposal(values, self._seed, values, f"asked of {self._rule.sampler}", asked.number)

    def asked(self, proposal: Proposal) -> bool:
        """Whether the proposal was asked here and not taken yet."""
        return proposal.number in self._asked

    def drop(self, proposal: Proposal) -> None:
        """The sampler knows that its proposal is not run."""
        if self.asked(proposal):
            self.take(proposal)
            self._dropped += 1

    def take(self, proposal: Proposal) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the sampler left at the asked trial and at the study; `begun` adds the trial again under its id."""
        from optuna.trial import TrialState

        asked = None if proposal.number is None else self._asked.pop(proposal.number, None)
        if asked is None:
            return {}, {}
        self._storage.set_trial_state_values(asked._trial_id, TrialState.FAIL)
        left = self._storage.get_trial(asked._trial_id).system_attrs
        return dict(left), dict(self._storage.get_study_system_attrs(self._study_id))

    def begun(self, record: Record, trial_state: Mapping[str, Any]) -> None:
        """The sampler knows that the trial runs."""
        from optuna.trial import TrialState, create_trial

        values = parameters(self._stage, record)
        template: FrozenTrial = create_trial(
            state=TrialState.RUNNING,
            params=values,
            distributions={key: self._space[key] for key in values},
            system_attrs=dict(trial_state),
        )
        self._ids[record.trial.id] = self._storage.create_new_trial(self._study_id, template)
        self._size += 1
        self._dropped = 0

    def ended(self, record: Record, score: Score | None) -> None:
        """The sampler knows how the trial ended.

        A point that cannot run or diverges is pruned without a value: to stay away from, yet never scored. Hearing
        nothing of it, TPE would go back there for ever, as to a region that it does not know. Any other failure says
        nothing about the point.
        """
        from optuna.trial import TrialState

        copied_id = self._ids.pop(record.trial.id, None)
        if copied_id is None:
            return
        if record.finished and score is not None and math.isfinite(score.value):
            self._storage.set_trial_state_values(copied_id, TrialState.COMPLETE, [score.value])
        else:
            state = TrialState.PRUNED if _is_the_points_fault(record.outcome) else TrialState.FAIL
            self._storage.set_trial_state_values(copied_id, state)


def worth_learning(entries: Sequence[AnyLearnable], count: int = LEARNED_TRIALS) -> list[AnyLearnable]:
    """The `count` best, the `count` latest and every running entry, in their order; all if there are not more."""
    if len(entries) <= 2 * count:
        return list(entries)
    scored = [i for i, e in enumerate(entries) if e.score is not None and e.score.value == e.score.value]
    best = sorted(scored, key=lambda i: entries[i].score.value, reverse=True)[:count]  # type: ignore[union-attr]
    running = [i for i, e in enumerate(entries) if e.record.outcome is None]
    return [entries[i] for i in sorted({*best, *running, *range(len(entries) - count, len(entries))})]


def _is_the_points_fault(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Diverged) or (isinstance(outcome, Failed) and outcome.failure_class in OF_THE_POINT)
