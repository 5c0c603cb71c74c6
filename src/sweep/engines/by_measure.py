"""`EngineByMeasure`: one engine for trials that train and one for those that only generate, on one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sweep.core.trial import Measure, Trial
from sweep.ports import Engine, Runtime


class EngineByMeasure:
    """Counts and reports as the training's engine, which is closed last since it holds the cluster."""

    def __init__(self, training: Engine, rollout: Engine) -> None:
        self.slots = training.slots
        self._training = training
        self._rollout = rollout

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True) -> Runtime:
        """A runtime of the engine that the trial is for.

        Raises:
            EngineError: as that engine does.
        """
        engine = self._training if trial.measure is Measure.TRAINING else self._rollout
        return engine.start(trial, folder, reuse=reuse)

    def versions(self) -> Mapping[str, str]:
        """Of everything that a trial depends on."""
        return {**self._rollout.versions(), **self._training.versions()}

    def close(self) -> None:
        """End both. Safe to call again."""
        try:
            self._rollout.close()
        finally:
            self._training.close()
