"""`GivingUp`: follows the curves of running trials and stops those certain to lose (`sweep.stages.hopeless`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sweep.core.curve import Curve
from sweep.core.outcome import Diverged, Outcome
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.stages.hopeless import hopeless
from sweep.stats.early import is_checkpoint


class GivingUp:
    """`stop` ends a running trial for a reason; switched off it stops none."""

    def __init__(self, stop: Callable[[str, str], None], *, on: bool = True) -> None:
        self._stop, self._on = stop, on
        self._rows: dict[str, dict[int, Mapping[str, float]]] = {}
        self._stopped: set[str] = set()

    def started(self, trial_id: str) -> None:
        """The trial begins: what it logged in an earlier attempt is void."""
        self._rows.pop(trial_id, None)

    def stepped(
        self,
        stage: Stage,
        settings: Overrides,
        trial: Trial,
        step: int,
        metrics: Mapping[str, float],
        progress: Callable[[], Progress],
    ) -> None:
        """A step was logged; `progress` tells what the stage knows, and is asked at checkpoints alone."""
        rows = self._rows.setdefault(trial.id, {})
        rows[step] = metrics
        if not self._on or not is_checkpoint(step, trial.steps):
            return
        if reason := hopeless(stage, progress(), settings, Curve.from_rows(rows.items())):
            self._stopped.add(trial.id)
            self._stop(trial.id, reason)

    def ended(self, trial_id: str, outcome: Outcome) -> Outcome:
        """The outcome, said to be given up if it was stopped here."""
        self._rows.pop(trial_id, None)
        if trial_id in self._stopped and isinstance(outcome, Diverged):
            return replace(outcome, given_up=True)
        return outcome
