"""Answers for `tracking`: campaigns shown in a real MLflow on SQLite, and read back from it."""

from __future__ import annotations

import json
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mlflow.entities import Run

from sweep.adapters.lease import Holder
from sweep.adapters.mlflow_connection import connect, owner_of
from sweep.adapters.mlflow_tracker import MlflowTracker
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.ports import CampaignInfo
from tests.adapters.store_stages import finished

STAGE = Stage("stage", (Knob("lr", 0, 1),), SearchRule(), "reward", StageBudget(10, 20))
REPEATED = re.compile(r"(?P<unit>\S+) \* (?P<count>\d+) characters")
ATTEMPT = re.compile(r"attempt (?P<number>\d+)")


class Page:
    """A campaign in a temporary folder, written by the tracker and read through MLflow's client."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.tracker = MlflowTracker.open("", "a1", self.folder)
        self.tracker.campaign_started(CampaignInfo("a1", self.folder, ("stage",)))

    def runs(self, kind: str) -> list[Run]:
        """The runs of the kind, once everything is written."""
        self.tracker.campaign_ended(0)
        client, experiment_id = connect("", "a1", self.folder)
        return list(client.search_runs([experiment_id], f"tags.`sweep.kind` = '{kind}'"))


def long_params(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of the params is in MLflow, and whether the campaign noticed."""
    params = {key: _expanded(value) for key, value in given["params"].items()}
    trial = Trial(Overrides.of(params), 0, 20)
    with tempfile.TemporaryDirectory() as folder:
        page = Page(folder)
        page.tracker.trial_started(STAGE, Proposal(trial.overrides, 0), trial, page.folder)
        (run,) = page.runs("trial")
        client, _ = connect("", "a1", page.folder)
        configuration = Path(client.download_artifacts(run.info.run_id, "configuration.yaml")).read_text()
    logged = []
    for key, value in params.items():
        cut = run.data.params[key] != str(value)
        hashed = f"sweep.sha256.{key}" in run.data.tags
        logged.append(f"{key} (truncated + sha256 tag)" if cut and hashed else key)
        assert not cut or (hashed and len(run.data.params[key]) <= given.get("server_limit", 250))
    whole = "".join(configuration.split())
    logged += ["full config as artifact"] if all(str(v) in whole for v in params.values()) else []
    return {"logged": logged, "trial_affected": bool(page.tracker._outbox.failures), "text": "; ".join(logged)}


def _expanded(value: Any) -> Any:
    match = REPEATED.fullmatch(value) if isinstance(value, str) else None
    return match["unit"] * int(match["count"]) if match else value


def attempts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a trial that needed several attempts, and what they hang under.

    A trial's settings never change between its attempts: other settings are another trial, with a run of its own.
    """
    numbers = [int(m["number"]) for event in given["events"] if (m := ATTEMPT.search(event))]
    named = re.search(r"trial \d+", " ".join(given["events"]))
    trial = Trial(Overrides.of({"lr": 1e-6}), 0, 20)
    with tempfile.TemporaryDirectory() as folder:
        page = Page(folder)
        page.tracker.trial_started(STAGE, Proposal(trial.overrides, 0), trial, page.folder)
        for _ in range(max(numbers) - 1):
            page.tracker.stepped(STAGE, trial, 1, {"critic/score/mean": 0.5})
            page.tracker.attempt_failed(STAGE, trial, Failed(FailureClass.OOM_GPU, "out of memory"))
        page.tracker.trial_ended(STAGE, trial, finished(), None)
        (whole,), failed = page.runs("trial"), page.runs("attempt")
    parents = {run.data.tags["mlflow.parentRunId"] for run in failed}
    under_trial = parents == {whole.info.run_id} and whole.data.tags["sweep.trial"] == trial.id
    return {
        "mlflow_runs": 1 + len(failed),
        "parent": named[0] if under_trial and named else "nothing",
        "text": f"{len(failed)} failed attempts under their trial",
    }


def reconciled(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a new session does to runs that it finds running."""
    me = Holder.this_process()
    dead = replace(me, pid=2**22 + 1)
    with tempfile.TemporaryDirectory() as folder:
        client, experiment_id = connect("", "a1", Path(folder))
        ids = {}
        for run in given["runs"]:
            tags = {
                "sweep.kind": "trial",
                "sweep.trial": str(run.get("trial", "")),
                "sweep.stage": "stage",
                "sweep.owner": str(run.get("owner", owner_of(Path(folder)))),
                "sweep.session": json.dumps(asdict(me if run.get("alive") else dead)),
            }
            ids[run["run"]] = client.create_run(experiment_id, tags=tags).info.run_id
        Page(folder).runs("trial")
        states = {name: client.get_run(run_id).info.status for name, run_id in ids.items()}
    actions = {name: "leave" if state == "RUNNING" else state for name, state in states.items()}
    return {"actions": actions, "computed": actions, "text": str(actions)}


def simultaneous(given: Mapping[str, Any]) -> dict[str, Any]:
    """What happens when many use a database that did not exist when the campaign began."""
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/shared.db"
        connect(uri, "a1", Path(folder))  # the driver's, at the start of every campaign
        start = threading.Barrier(given["count"])

        def use() -> None:
            start.wait()
            try:
                client, experiment_id = connect(uri, "a1", Path(folder))
                client.log_metric(client.create_run(experiment_id).info.run_id, "score", 0.5)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=use) for _ in range(given["count"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    action = "the driver, parent of all, opens the store once and makes its tables before the first child starts"
    return {"failures": len(failures), "action": action, "text": action}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "params": long_params,
    "event_sequence": attempts,
    "mlflow_state": reconciled,
    "launch": simultaneous,
}
