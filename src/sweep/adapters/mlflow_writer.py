"""`MlflowWriter`: what each event of a campaign changes in MLflow. Used by one thread; may raise what MLflow raises.

Whatever run is missing when it is needed is made then, so that a fault in the middle heals by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.adapters.mlflow_runs import Row, RunTree, curve_rows, titled, tuned
from sweep.adapters.redaction import without_secrets
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.ports import CampaignInfo

Key = tuple[str, str]
"""Stage name and trial id."""


@dataclass(slots=True)
class Shown:
    """A running trial and its run; `run_id` is empty while it could not be made. `earlier` are failed attempts."""

    stage: Stage
    trial: Trial
    settings: Overrides
    tags: Mapping[str, str]
    run_id: str = ""
    earlier: tuple[str, ...] = ()


class MlflowWriter:
    """Writes one campaign. `known` are outcomes of trials whose runs a dead driver left running."""

    def __init__(self, tree: RunTree, campaign: str, known: Mapping[str, Outcome]) -> None:
        self._tree, self._campaign, self._known = tree, campaign, known
        self._campaign_run = ""
        self._stage_runs: dict[str, str] = {}
        self._trials: dict[Key, Shown] = {}
        self._lost: dict[Key, tuple[str, ...]] = {}

    def begin_campaign(self, info: CampaignInfo) -> None:
        """What a dead driver left is settled; the campaign's run is running and has the configuration."""
        for run in self._tree.abandoned("trial"):
            tags, run_id = run.data.tags, str(run.info.run_id)
            key = (tags.get("sweep.stage", ""), tags.get("sweep.trial", ""))
            outcome = self._known.get(key[1])
            if isinstance(outcome, Finished):
                self._tree.metrics(run_id, curve_rows(outcome.curve, int(run.info.start_time)))
                self._tree.end(run_id, "FINISHED", {"sweep.completed_from": "trial storage"})
            else:
                self._tree.end(run_id, "FAILED", {"sweep.message": "its driver ended"})
                self._lost[key] = (*self._lost.get(key, ()), run_id)
        for run in (*self._tree.abandoned("stage"), *self._tree.abandoned("campaign")):
            self._tree.end(str(run.info.run_id), "FAILED")
        self._tree.tag(self._run_of_campaign(), {"sweep.folder": str(info.folder)})
        self._tree.document(self._run_of_campaign(), _document(info.configuration), "configuration.yaml")

    def stage_run(self, name: str) -> str:
        """The id of the stage's run, running, made if missing."""
        if name not in self._stage_runs:
            self._stage_runs[name] = self._tree.open("stage", name, self._run_of_campaign())
        return self._stage_runs[name]

    def begin_trial(self, stage: Stage, trial: Trial, proposal: Proposal, folder: Path) -> None:
        """The trial has a run; runs of it that a dead driver left are its earlier attempts."""
        tags = {
            "sweep.note": proposal.note,
            "sweep.requested": json.dumps(proposal.requested.to_json()),
            "sweep.folder": str(folder),
        }
        key = (stage.name, trial.id)
        shown = self._trials[key] = Shown(stage, trial, proposal.settings, tags, earlier=self._lost.pop(key, ()))
        self._make(shown)

    def steps(self, key: Key, rows: list[Row]) -> None:
        """The trial's run has the rows."""
        if key in self._trials:
            self._tree.metrics(self._run_of(self._trials[key]), rows)

    def end_attempt(self, key: Key, message: str, failure_class: str, rows: list[Row]) -> None:
        """The trial has a new run, and the one so far is a failed attempt under it."""
        shown = self._trials[key]
        failed_id = self._run_of(shown)
        self._tree.metrics(failed_id, rows)
        self._tree.end(failed_id, "FAILED", {"sweep.message": message, "sweep.failure_class": failure_class})
        shown.run_id, shown.earlier = "", (*shown.earlier, failed_id)
        self._make(shown)

    def end_trial(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None, rows: list[Row]) -> None:
        """The trial's run has ended with its results; one that was not started here gets its curve from the outcome."""
        shown = self._trials.pop((stage.name, trial.id), None)
        if shown is None:
            if self._tree.find("trial", stage=stage.name, trial=trial.id):
                return  # its run has ended already
            shown = Shown(stage, trial, _knobs(stage, trial), {"sweep.reused": "true"})
        if not shown.run_id and isinstance(outcome, Finished | Diverged):
            rows = curve_rows(outcome.curve, _now_ms())
        run_id = self._run_of(shown)
        self._tree.metrics(run_id, [*rows, (_now_ms(), trial.steps, _results(outcome, score))])
        self._tree.end(run_id, *_status(outcome))

    def end_stage(self, winner: Winner) -> None:
        """The stage's run has ended and shows the winner."""
        run_id, choice = self.stage_run(winner.stage), winner.choice
        self._tree.params(run_id, choice.settings.to_json())
        results = {"objective": choice.score.value, "baseline_objective": choice.baseline_score.value}
        self._tree.metrics(run_id, [(_now_ms(), 0, results)])
        self._tree.document(run_id, winner.to_json(), "winner.yaml")
        self._tree.end(run_id, "FINISHED", {"sweep.reason": choice.reason})
        del self._stage_runs[winner.stage]

    def end_campaign(self, exit_code: int) -> None:
        """No run of this session is running any more."""
        for shown in self._trials.values():
            self._tree.end(self._run_of(shown), "KILLED", {"sweep.message": "the campaign ended first"})
        for run_id in self._stage_runs.values():
            self._tree.end(run_id, "FAILED")
        self._tree.end(self._run_of_campaign(), "FINISHED" if exit_code in (0, 4) else "FAILED")

    def _run_of_campaign(self) -> str:
        if not self._campaign_run:
            self._campaign_run = self._tree.open("campaign", self._campaign, None)
        return self._campaign_run

    def _run_of(self, shown: Shown) -> str:
        if not shown.run_id:
            self._make(shown)
        return shown.run_id

    def _make(self, shown: Shown) -> None:
        stage, trial = shown.stage, shown.trial
        tags = {"sweep.trial": trial.id, "sweep.stage": stage.name, **shown.tags}
        parent = self.stage_run(stage.name)
        shown.run_id = self._tree.create("trial", titled(stage, trial, shown.settings), parent, tags)
        self._tree.params(shown.run_id, tuned(stage, trial, shown.settings))
        self._tree.document(shown.run_id, _document(trial.to_json()), "configuration.yaml")
        for number, attempt_id in enumerate(shown.earlier, start=1):
            self._tree.file_attempt(attempt_id, shown.run_id, number)


def _knobs(stage: Stage, trial: Trial) -> Overrides:
    """The trial's values of the stage's knobs: all that is known of a trial from another stage."""
    return Overrides.of(
        {knob.key: trial.overrides.get(knob.key) for knob in stage.knobs if knob.key in trial.overrides}
    )


def _results(outcome: Outcome, score: Score | None) -> dict[str, float]:
    """What stands beside the curves when trials are compared."""
    found = {"wall_seconds": outcome.wall_seconds}
    if score is not None:
        found |= {"objective": score.value, "objective_error": score.standard_error}
        found |= {f"part.{name}": value for name, value in score.parts}
    return found


def _status(outcome: Outcome) -> tuple[str, dict[str, str]]:
    match outcome:
        case Finished():
            return "FINISHED", {}
        case Diverged(reason=reason, given_up=given_up):
            return ("KILLED", {"sweep.given_up": reason}) if given_up else ("FAILED", {"sweep.diverged": reason})
        case Failed(failure_class, message, last_step, log_path):
            tags = {"sweep.message": message, "sweep.last_step": str(last_step), "sweep.log": log_path}
            return "FAILED", {"sweep.failure_class": failure_class.value, **tags}


def _document(content: Mapping[str, object]) -> dict[str, object]:
    """The content as an artifact may show it."""
    shown = without_secrets(content)
    assert isinstance(shown, dict)
    return shown


def _now_ms() -> int:
    return round(1000 * time.time())
