"""`StudyLog`: every write to one Optuna study, patient with a faulty database and safe to repeat.

Knows Optuna trials by their storage id; what their attributes mean is `sweep.adapters.trial_attributes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sweep.adapters.storage import patiently
from sweep.core.outcome import Finished, Outcome
from sweep.core.winner import Score

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Result = TypeVar("Result")


class StudyLog:
    """One study of the storage, made if missing. Scores are maximised."""

    def __init__(self, storage: BaseStorage, name: str, patience_seconds: float) -> None:
        self._storage, self._patience_seconds = storage, patience_seconds
        self._study_id = self._patiently(partial(_study_id, storage, name), "open a study")

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

    def sampler_state(self) -> dict[str, Any]:
        """What a sampler left at the study."""
        return dict(self._patiently(lambda: self._storage.get_study_system_attrs(self._study_id), "read a study"))

    def write_sampler_state(self, state: Mapping[str, Any]) -> None:
        """The sampler's state stands at the study."""
        for key, value in state.items():
            self._patiently(
                partial(self._storage.set_study_system_attr, self._study_id, key, value), "write to a study"
            )

    def create(
        self,
        parameters: Mapping[str, Any],
        space: Mapping[str, BaseDistribution],
        attributes: Mapping[str, Any],
        sampler_state: Mapping[str, Any],
    ) -> int:
        """The id of a new running Optuna trial, written with all its content in one transaction, once.

        `attributes["intent"]` must be unlike any other trial's.
        """
        from optuna.trial import TrialState, create_trial

        template = create_trial(
            state=TrialState.RUNNING,
            params=dict(parameters),
            distributions={key: space[key] for key in parameters},
            user_attrs=dict(attributes),
            system_attrs=dict(sampler_state),
        )
        tried = False

        def action() -> int:
            nonlocal tried
            repeated, tried = tried, True
            found = self._created(attributes["intent"]) if repeated else None
            return self._storage.create_new_trial(self._study_id, template) if found is None else found

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

    def _created(self, intent: str) -> int | None:
        """The id of the trial with this intent: a connection lost during a commit may hide that it was made."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return next((trial._trial_id for trial in trials if trial.user_attrs.get("intent") == intent), None)

    def _patiently(self, action: Callable[[], Result], what: str) -> Result:
        return patiently(action, what, self._patience_seconds)


def _study_id(storage: BaseStorage, name: str) -> int:
    """The id of the study with this name, made if missing."""
    from optuna.exceptions import DuplicatedStudyError
    from optuna.study import StudyDirection

    with suppress(KeyError):
        return int(storage.get_study_id_from_name(name))
    with suppress(DuplicatedStudyError):  # made by another process just now
        return int(storage.create_new_study([StudyDirection.MAXIMIZE], name))
    return int(storage.get_study_id_from_name(name))
