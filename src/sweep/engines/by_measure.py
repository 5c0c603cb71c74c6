"""`EngineByMeasure`: one engine for trials that train and one for those that only generate, on one cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.core.trial import Measure, Trial
from sweep.ports import Checkpoint, Engine, Runtime


class EngineByMeasure:
    """Counts and reports as the training's engine, which is closed last since it holds the cluster."""

    def __init__(self, training: Engine, rollout: Engine) -> None:
        self._training = training
        self._rollout = rollout

    @property
    def slots(self) -> int:
        """Those of the training."""
        return self._training.slots

    def check(self, trial: Trial) -> None:
        """Raises: ConfigError: if the cluster cannot hold as many trials like this one as were asked for."""
        self._training.check(trial)

    def checkpoint(self, trial: Trial, folder: Path) -> Checkpoint | None:
        """Of a trial that trains."""
        return self._training.checkpoint(trial, folder) if trial.measure is Measure.TRAINING else None

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, Runtime]:
        """Trials that train; one that only generates takes a minute and ends with its driver."""
        return self._training.adopt({t: f for t, f in folders.items() if t.measure is Measure.TRAINING})

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None) -> Runtime:
        """A runtime of the engine that the trial is for.

        Raises:
            EngineError: as that engine does.
        """
        engine = self._training if trial.measure is Measure.TRAINING else self._rollout
        return engine.start(trial, folder, reuse=reuse, checkpoint=checkpoint)

    def notices(self) -> Sequence[str]:
        """Of either, each once."""
        return tuple(dict.fromkeys((*self._training.notices(), *self._rollout.notices())))

    def versions(self) -> Mapping[str, str]:
        """Of everything that a trial depends on."""
        return {**self._rollout.versions(), **self._training.versions()}

    def close(self) -> None:
        """End both. Safe to call again."""
        try:
            self._rollout.close()
        finally:
            self._training.close()
