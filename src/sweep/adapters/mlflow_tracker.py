"""`MlflowTracker`: an observer that shows a campaign in MLflow as nested runs with curves, params and artifacts.

It fails at opening if MLflow cannot be reached, and never after: a fault is warned about once. Every call only
queues; a background thread talks to MLflow, metrics in batches. Nothing is ever read back for a decision.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sweep.adapters.lease import Holder
from sweep.adapters.mlflow_connection import connect, owner_of
from sweep.adapters.mlflow_runs import OURS, Row, RunTree
from sweep.adapters.mlflow_writer import Key, MlflowWriter
from sweep.adapters.outbox import Outbox
from sweep.core.outcome import Failed, Outcome
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.ports import CampaignInfo

log = logging.getLogger(__name__)

CLOSE_SECONDS = 60.0
"""How long the end of a campaign waits for what is still queued. Ours."""

Find = Callable[[str], Outcome | None]


class MlflowTracker:
    """Implements `sweep.ports.Observer`. Made by `MlflowTracker.open`."""

    def __init__(self, writer: MlflowWriter, close_seconds: float = CLOSE_SECONDS) -> None:
        self._writer, self._close_seconds = writer, close_seconds
        self._lock = threading.Lock()
        self._rows: dict[Key, list[Row]] = {}
        self._last_step: dict[Key, int] = {}
        self._first_reading_ms: dict[Key, int | None] = {}
        self._outbox = Outbox("mlflow", self._send_steps)

    @classmethod
    def open(cls, tracking_uri: str, campaign: str, folder: Path, find: Find = lambda trial_id: None) -> MlflowTracker:
        """A tracker on the campaign's experiment, its tables made, unfinished runs of dead drivers found.

        `find` is the store's: what it knows of such a run completes it. Call it while this driver holds the campaign.

        Raises:
            ConfigError: if MLflow cannot be reached at this URI.
        """
        client, experiment_id = connect(tracking_uri, campaign, folder)
        tree = RunTree(client, experiment_id, owner_of(folder), Holder.this_process())
        ids = {run.data.tags.get("sweep.trial", "") for run in tree.abandoned("trial")}
        known = {trial_id: outcome for trial_id in ids if (outcome := find(trial_id)) is not None}
        return cls(MlflowWriter(tree, campaign, known))

    def campaign_started(self, info: CampaignInfo) -> None:
        """The campaign has a run with its configuration; what a dead driver left is settled."""
        self._outbox.put(partial(self._writer.begin_campaign, info))

    def stage_started(self, stage: Stage) -> None:
        """The stage has a run under the campaign's."""
        self._outbox.put(partial(self._writer.stage_run, stage.name))

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        """The trial has a run under its stage's, with params and configuration."""
        self._last_step[stage.name, trial.id] = 0
        with self._lock:
            self._first_reading_ms[stage.name, trial.id] = None
        self._outbox.put(partial(self._writer.begin_trial, stage, trial, proposal, folder))

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:
        """The step's metrics are on their way; a step that comes again belongs to another attempt."""
        key = (stage.name, trial.id)
        if step <= self._last_step.get(key, 0):
            self._end_attempt(key, "it began again", "")
        self._last_step[key] = step
        values = {OURS[name]: float(value) for name, value in metrics.items() if name in OURS}
        self._give(key, [(round(1000 * time.time()), step, values)])

    def system_metrics(self, trial_id: str, at_ms: int, metrics: Mapping[str, float]) -> None:
        """A reading of the trial's hardware is on its way, its step the seconds since the first; any thread may call.

        What belongs to no running trial is dropped.
        """
        with self._lock:
            running = {key: first for key, first in self._first_reading_ms.items() if key[1] == trial_id}
            self._first_reading_ms |= {key: at_ms for key, first in running.items() if first is None}
        for key, first in running.items():
            self._give(key, [(at_ms, (at_ms - (at_ms if first is None else first)) // 1000, metrics)])

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        """What was logged so far is a failed attempt under the trial's new run."""
        self._end_attempt((stage.name, trial.id), failure.message, failure.failure_class.value)

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """The trial's run is ended with its score; a trial known from elsewhere gets a run with its whole curve."""
        key = (stage.name, trial.id)
        self._last_step.pop(key, None)
        with self._lock:
            self._first_reading_ms.pop(key, None)
        self._outbox.put(partial(self._writer.end_trial, stage, trial, outcome, score, self._take(key)))

    def stage_frozen(self, stage: Stage, winner: Winner) -> None:
        """The stage's run is ended with its winner."""
        self._outbox.put(partial(self._writer.end_stage, winner))

    def campaign_ended(self, exit_code: int) -> None:
        """Everything is sent and every run ended, as far as MLflow answers in time."""
        self._outbox.put(partial(self._writer.end_campaign, exit_code))
        if not self._outbox.close(self._close_seconds):
            log.warning("mlflow: gave up after %.0f s with part of the record unsent", self._close_seconds)
        elif self._outbox.failures:
            log.warning("mlflow: %d requests failed; the trial storage has everything", self._outbox.failures)

    def _end_attempt(self, key: Key, message: str, failure_class: str) -> None:
        self._last_step[key] = 0
        self._outbox.put(partial(self._writer.end_attempt, key, message, failure_class, self._take(key)))

    def _send_steps(self) -> None:
        """In the background: what has gathered is sent; what could not be is kept for the next time."""
        for key in list(self._rows):
            rows = self._take(key)
            try:
                self._writer.steps(key, rows)
            except Exception:
                self._give(key, rows, first=True)
                raise

    def _give(self, key: Key, rows: list[Row], *, first: bool = False) -> None:
        with self._lock:
            waiting = self._rows.setdefault(key, [])
            self._rows[key] = rows + waiting if first else waiting + rows

    def _take(self, key: Key) -> list[Row]:
        with self._lock:
            return self._rows.pop(key, [])
