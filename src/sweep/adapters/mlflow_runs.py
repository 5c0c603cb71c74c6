"""`RunTree`: the runs of one campaign in MLflow, always by explicit run id: campaign > stage > trial > failed attempt.

Only runs that carry the campaign's owner tag are ever found or changed. Synchronous; `sweep.adapters.mlflow_tracker`
calls it from a background thread.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from sweep.adapters.lease import Holder
from sweep.core.curve import METRICS, Curve
from sweep.core.overrides import Overrides, bare, thaw
from sweep.core.stage import Stage
from sweep.core.trial import Trial

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PARENT = "mlflow.parentRunId"
MOST_METRICS = 1000
"""Metrics a request. Source: MLflow's REST API, runs/log-batch."""

LONGEST_PARAM = 250
"""Characters of a param's value. Source: the smallest limit among MLflow servers (mlflow issues 4992 and 10512)."""

LONGEST_TAG = 5000
"""Characters of a tag's value. Source: MLflow's REST API, runs/set-tag."""

OURS = {verl: name for name, verl in METRICS.items()}
"""verl's metric name to ours, which is also the name in MLflow."""

Row = tuple[int, int, Mapping[str, float]]
"""Time in ms, step, our names to values."""


class RunTree:
    """Makes, finds and ends the runs of the campaign with this owner tag."""

    def __init__(self, client: MlflowClient, experiment_id: str, owner: str, session: Holder) -> None:
        self._client, self._experiment_id, self._owner, self._session = client, experiment_id, owner, session

    def open(self, kind: str, name: str, parent: str | None) -> str:
        """The id of the one run of this kind and name, made under the parent if missing, running again if not."""
        found = self.find(kind, name=name)
        if not found:
            return self.create(kind, name, parent, {"sweep.name": name})
        run_id = str(found[0].info.run_id)
        self._client.update_run(run_id, status="RUNNING")
        self.tag(run_id, {"sweep.session": json.dumps(asdict(self._session))})
        return run_id

    def create(self, kind: str, title: str, parent: str | None, tags: Mapping[str, str]) -> str:
        """The id of a new running run."""
        own = {
            "sweep.kind": kind,
            "sweep.owner": self._owner,
            "sweep.session": json.dumps(asdict(self._session)),
            **({PARENT: parent} if parent else {}),
        }
        cut = {key: value[:LONGEST_TAG] for key, value in {**own, **tags}.items()}
        run = self._client.create_run(self._experiment_id, tags=cut, run_name=title[:LONGEST_PARAM])
        return str(run.info.run_id)

    def find(self, kind: str, *, running: bool = False, **tags: str) -> list[Run]:
        """This campaign's runs of the kind that carry all these tags of ours, newest first."""
        ours = {"owner": self._owner, "kind": kind, **tags}
        wanted = [f"tags.`sweep.{name}` = '{value}'" for name, value in ours.items()]
        wanted += ["attributes.status = 'RUNNING'"] if running else []
        found: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id], " and ".join(wanted), page_token=token, max_results=1000
            )
            found, token = [*found, *page], page.token
            if not token:
                return found

    def abandoned(self, kind: str) -> list[Run]:
        """Running runs that another session of this campaign left, and whose process is not seen alive."""
        return [run for run in self.find(kind, running=True) if self._is_abandoned(run)]

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """The run carries the tags."""
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(k, v[:LONGEST_TAG]) for k, v in tags.items()])

    def params(self, run_id: str, values: Mapping[str, object]) -> None:
        """The run carries the params; a value that is too long is cut, and its hash kept as a tag."""
        from mlflow.entities import Param, RunTag

        params, tags = [], []
        for key, value in values.items():
            name = bare(key)
            text = value if isinstance(value, str) else json.dumps(value)
            params.append(Param(name, text[:LONGEST_PARAM]))
            if len(text) > LONGEST_PARAM:
                tags.append(RunTag(f"sweep.sha256.{name}", hashlib.sha256(text.encode()).hexdigest()))
        self._client.log_batch(run_id, params=params, tags=tags)

    def metrics(self, run_id: str, rows: Iterable[Row]) -> None:
        """The run carries the rows; what is not finite is left out."""
        from mlflow.entities import Metric

        found = [
            Metric(name, value, at_ms, step)
            for at_ms, step, values in rows
            for name, value in values.items()
            if math.isfinite(value)
        ]
        for first in range(0, len(found), MOST_METRICS):
            self._client.log_batch(run_id, metrics=found[first : first + MOST_METRICS])

    def document(self, run_id: str, content: Mapping[str, object], file_name: str) -> None:
        """The run has the content as an artifact."""
        self._client.log_dict(run_id, dict(content), file_name)

    def end(self, run_id: str, status: str, tags: Mapping[str, str] | None = None) -> None:
        """The run has ended with this status of MLflow's: FINISHED, FAILED or KILLED."""
        if tags:
            self.tag(run_id, tags)
        self._client.set_terminated(run_id, status)

    def file_attempt(self, run_id: str, parent: str, number: int) -> None:
        """The run is a failed attempt under the trial's run."""
        title = f"attempt {number}"
        self.tag(run_id, {PARENT: parent, "sweep.kind": "attempt", "mlflow.runName": title})
        self._client.update_run(run_id, name=title)

    def _is_abandoned(self, run: Run) -> bool:
        session = run.data.tags.get("sweep.session", "")
        if session == json.dumps(asdict(self._session)):
            return False
        try:
            return Holder(**json.loads(session)).lives() is not True
        except (TypeError, ValueError):
            return True


def curve_rows(curve: Curve, at_ms: int) -> list[Row]:
    """The curve as rows, every step timed from `at_ms` on by the seconds that the steps took."""
    rows: list[Row] = []
    elapsed = 0.0
    for i, step in enumerate(curve.steps):
        elapsed += curve.step_seconds[i] if math.isfinite(curve.step_seconds[i]) else 0.0
        rows.append((at_ms + int(1000 * elapsed), step, {name: getattr(curve, name)[i] for name in METRICS}))
    return rows


def tuned(stage: Stage, trial: Trial, settings: Overrides) -> dict[str, object]:
    """What tells the stage's trials apart: its knobs and the trial's own settings, as the trial has them, and its seed.

    The knobs come first and are there for the baseline too, so that trials stand side by side.
    """
    keys = [*(knob.key for knob in stage.knobs), *(key for key, _ in settings)]
    values = {bare(key): thaw(trial.overrides.get(key)) for key in keys}
    return {**values, "seed": trial.seed}


def titled(stage: Stage, trial: Trial, settings: Overrides) -> str:
    """The trial's name for people: its knobs with verl's last key part, or the baseline."""
    knobs = [bare(key) for key, _ in settings if bare(key) in {bare(knob.key) for knob in stage.knobs}]
    shown = [f"{key.rsplit('.', 1)[-1]}={thaw(trial.overrides.get(key))}" for key in knobs or settings.by_bare_key()]
    return f"{', '.join(shown) or 'baseline'} seed {trial.seed}"
