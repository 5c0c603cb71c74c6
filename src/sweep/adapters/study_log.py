"""`StudyLog`: every write to one Optuna study, patient with a faulty database and safe to repeat.

Knows Optuna trials by their storage id; what their attributes mean is `sweep.adapters.trial_attributes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sweep.adapters.storage import patiently
from sweep.adapters.trial_attributes import Stored
from sweep.core.outcome import Finished, Outcome
from sweep.core.progress import Proposal
from sweep.core.winner import Score

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Result = TypeVar("Result")


class StudyLog:
    """One study of the storage, made if missing. Scores are maximised."""

    def __init__(self, storage: BaseStorage, name: str, patience_seconds: float) -> None:
        import optuna

        self._storage, self._patience_seconds = storage, patience_seconds
        self._study = self._patiently(
            lambda: optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True),
            "open a study",
        )
        self._study_id = self._patiently(lambda: storage.get_study_id_from_name(name), "find a study")

    def attributes(self) -> dict[str, Any]:
        """The study's own attributes."""
        return dict(self._patiently(lambda: self._storage.get_study_user_attrs(self._study_id), "read a study"))

    def trials(self) -> list[FrozenTrial]:
        """Every Optuna trial in order of its number; not to be changed."""
        return list(
            self._patiently(lambda: self._storage.get_all_trials(self._study_id, deepcopy=False), "read trials")
        )

    def trial(self, optuna_id: int) -> FrozenTrial:
        """One Optuna trial as it is stored now."""
        return self._patiently(lambda: self._storage.get_trial(optuna_id), "read a trial")

    def ask(self, sampler: BaseSampler, space: Mapping[str, BaseDistribution], seed: int) -> tuple[Proposal, int]:
        """The sampler's next proposal and the id of its Optuna trial, which counts as begun only with an intent."""
        from sweep.core.overrides import Overrides

        self._study.sampler = sampler
        asked = self._patiently(lambda: self._study.ask(dict(space)), "ask the sampler")
        values = Overrides.of(asked.params)
        return Proposal(values, seed, values, f"asked of {type(sampler).__name__}", asked.number), asked._trial_id

    def create(self, parameters: Mapping[str, Any], space: Mapping[str, Any], attributes: Mapping[str, Any]) -> int:
        """The id of a new running Optuna trial, written with all its content in one transaction, once."""
        from optuna.trial import TrialState, create_trial

        template = create_trial(
            state=TrialState.RUNNING,
            params=dict(parameters),
            distributions={key: space[key] for key in parameters},
            user_attrs=dict(attributes),
        )
        template.datetime_start = datetime.now()
        tried = False

        def action() -> int:
            nonlocal tried
            if tried:  # the lost connection may have hidden a commit
                for trial in self._storage.get_all_trials(self._study_id, deepcopy=False):
                    if trial.user_attrs.get("intent") == attributes["intent"]:
                        return int(trial._trial_id)
            tried = True
            return int(self._storage.create_new_trial(self._study_id, template))

        return self._patiently(action, "begin a trial")

    def write(self, optuna_id: int, attributes: Iterable[tuple[str, Any]]) -> None:
        """The attributes stand at the trial, in this order.

        Raises:
            UpdateFinishedTrialError: if the trial is closed.
        """
        for key, value in attributes:
            self._patiently(partial(self._storage.set_trial_user_attr, optuna_id, key, value), "write to a trial")

    def write_study(self, attributes: Iterable[tuple[str, Any]]) -> None:
        """The attributes stand at the study, in this order."""
        for key, value in attributes:
            self._patiently(partial(self._storage.set_study_user_attr, self._study_id, key, value), "write to a study")

    def tell(self, optuna_id: int, outcome: Outcome | None, score: Score | None) -> None:
        """The Optuna trial is closed: COMPLETE with a finite score if it finished with one, otherwise FAIL.

        A failure must not be told as a bad score: Optuna would learn from it.

        Raises:
            UpdateFinishedTrialError: if the trial was closed before.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        scored = isinstance(outcome, Finished) and score is not None and math.isfinite(score.value)
        state = TrialState.COMPLETE if scored else TrialState.FAIL
        values = [score.value] if scored and score is not None else None
        tried = False

        def action() -> None:
            nonlocal tried
            repeated, tried = tried, True
            try:
                self._storage.set_trial_state_values(optuna_id, state, values)
            except UpdateFinishedTrialError:
                if not repeated:
                    raise

        self._patiently(action, "close a trial")

    def complete_half_made(self, trial: FrozenTrial, stored: Stored | None) -> None:
        """What a killed driver left half made is closed: asked but never begun, or ended but never told."""
        from optuna.trial import TrialState

        if trial.state != TrialState.RUNNING:
            return  # enqueued by hand: the sampler will hand it out
        if stored is None:
            self.tell(trial._trial_id, None, None)
        elif stored.record.outcome is not None:
            self.tell(trial._trial_id, stored.record.outcome, stored.score)

    def _patiently(self, action: Callable[[], Result], what: str) -> Result:
        return patiently(action, what, self._patience_seconds)
