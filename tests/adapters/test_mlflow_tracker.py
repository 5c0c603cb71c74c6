"""`sweep.adapters.mlflow_tracker` against MLflow on SQLite, as a reader of MLflow sees the result."""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from mlflow.entities import Run

from sweep.adapters import mlflow_connection
from sweep.adapters.lease import Holder
from sweep.adapters.mlflow_connection import _explained, connect, owner_of
from sweep.adapters.mlflow_runs import RunTree
from sweep.adapters.mlflow_tracker import MlflowTracker
from sweep.adapters.mlflow_writer import MlflowWriter
from sweep.core.curve import METRICS, Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial
from sweep.errors import ConfigError
from sweep.ports import CampaignInfo
from tests.adapters.store_stages import KL, MINI, failed, finished, kl, minibatch, proposal, score, trial, winner

pytestmark = pytest.mark.slow


class Reader:
    """What MLflow shows of one campaign folder."""

    def __init__(self, folder: Path, campaign: str = "a1") -> None:
        self.client, self.experiment_id = connect("", campaign, folder)

    def runs(self, kind: str) -> list[Run]:
        """The runs of the kind, oldest first."""
        found = self.client.search_runs(
            [self.experiment_id], f"tags.`sweep.kind` = '{kind}'", order_by=["attributes.start_time ASC"]
        )
        return list(found)

    def one(self, kind: str) -> Run:
        (run,) = self.runs(kind)
        return run

    def history(self, run: Run, metric: str) -> list[tuple[int, float]]:
        return sorted((m.step, m.value) for m in self.client.get_metric_history(run.info.run_id, metric))

    def artifact(self, run: Run, name: str) -> str:
        return Path(self.client.download_artifacts(run.info.run_id, name)).read_text()


@pytest.fixture
def info(tmp_path: Path) -> CampaignInfo:
    return CampaignInfo("a1", tmp_path, ("minibatch", "kl"), {"seed": 3, "storage": "postgresql://u:hush@h/d"})


def step(tracker: MlflowTracker, number: int, value: float, settings: dict[str, object] | None = None) -> None:
    metrics = {"critic/score/mean": value, "timing_s/step": 2.0, "not/ours": 1.0}
    tracker.stepped(kl, trial(settings), number, metrics)


def test_a_campaign_is_a_tree_of_runs_with_curves_params_and_configuration(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.stage_started(kl)
    for settings, value in (({}, 0.5), ({KL: 0.002}, 0.7)):
        tracker.trial_started(kl, proposal(settings), trial(settings), info.folder / trial(settings).id)
        for number in range(1, 21):
            step(tracker, number, value * number, settings)
        tracker.trial_ended(kl, trial(settings), finished(value), score(value))
    tracker.stage_frozen(kl, winner())
    tracker.campaign_ended(0)

    seen = Reader(info.folder)
    campaign, stage, (baseline, candidate) = seen.one("campaign"), seen.one("stage"), seen.runs("trial")
    assert "mlflow.parentRunId" not in campaign.data.tags
    assert stage.data.tags["mlflow.parentRunId"] == campaign.info.run_id
    assert {run.data.tags["mlflow.parentRunId"] for run in (baseline, candidate)} == {stage.info.run_id}
    assert {run.info.status for run in (campaign, stage, baseline, candidate)} == {"FINISHED"}
    assert seen.history(candidate, "score") == [(n, 0.7 * n) for n in range(1, 21)]
    assert baseline.data.params == {KL: "0.001", "seed": "0"}
    assert candidate.data.params == {KL: "0.002", "seed": "0"}
    assert candidate.data.metrics["objective"] == 0.7
    assert "not/ours" not in candidate.data.metrics
    assert set(candidate.data.metrics) <= {*METRICS, "objective", "objective_error", "wall_seconds"} | {
        "part.gain",
        "part.step_seconds",
    }
    assert (baseline.info.run_name, candidate.info.run_name) == ("baseline seed 0", "kl_coef=0.002 seed 0")
    assert json.loads(json.dumps(trial({KL: 0.002}).to_json()))["steps"] == 20
    assert "algorithm.kl_ctrl.kl_coef: 0.002" in seen.artifact(candidate, "configuration.yaml")
    assert "hush" not in seen.artifact(campaign, "configuration.yaml")
    assert "seed: 3" in seen.artifact(campaign, "configuration.yaml")
    assert stage.data.params == {KL: "0.002"}
    assert (stage.data.metrics["objective"], stage.data.metrics["baseline_objective"]) == (0.6, 0.5)


def test_a_param_that_is_too_long_is_cut_and_its_hash_kept_while_the_rest_is_whole(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    settings = {"data.train_files": "x" * 7000, "+data.new": [1, 2], KL: 1e-6}
    tracker.trial_started(kl, proposal(settings), trial(settings), info.folder)
    tracker.campaign_ended(0)
    run = Reader(info.folder).one("trial")
    assert run.data.params == {"data.train_files": "x" * 250, "data.new": "[1, 2]", KL: "1e-06", "seed": "0"}
    assert len(run.data.tags["sweep.sha256.data.train_files"]) == 64
    assert "x" * 7000 in Reader(info.folder).artifact(run, "configuration.yaml").replace("\n", "").replace(" ", "")


def test_a_failed_attempt_is_a_run_of_its_own_under_the_trial(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.trial_started(kl, proposal(), trial(), info.folder)
    step(tracker, 1, 0.1)
    step(tracker, 2, 0.2)
    tracker.attempt_failed(kl, trial(), failed(FailureClass.ENV_FAULT, "node lost"))
    step(tracker, 1, 0.11)
    step(tracker, 1, 0.12)  # it began again without word
    step(tracker, 2, 0.22)
    tracker.trial_ended(kl, trial(), finished(), score(0.5))
    tracker.campaign_ended(0)
    seen = Reader(info.folder)
    run, attempts = seen.one("trial"), seen.runs("attempt")
    assert run.info.status == "FINISHED"
    assert seen.history(run, "score") == [(1, 0.12), (2, 0.22)]
    assert [seen.history(a, "score") for a in attempts] == [[(1, 0.1), (2, 0.2)], [(1, 0.11)]]
    assert {a.data.tags["mlflow.parentRunId"] for a in attempts} == {run.info.run_id}
    assert {a.info.status for a in attempts} == {"FAILED"}
    assert [a.info.run_name for a in attempts] == ["attempt 1", "attempt 2"]
    assert attempts[0].data.tags["sweep.message"] == "node lost"
    assert attempts[0].data.tags["sweep.failure_class"] == "environment fault"


@pytest.mark.parametrize(
    ("outcome", "status", "tag"),
    [
        (failed(), "FAILED", ("sweep.failure_class", "gpu out of memory")),
        (Diverged(Curve(), "kl above 1"), "FAILED", ("sweep.diverged", "kl above 1")),
    ],
)
def test_a_trial_that_did_not_finish_says_why(
    info: CampaignInfo, outcome: Outcome, status: str, tag: tuple[str, str]
) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.trial_started(kl, proposal(), trial(), info.folder)
    tracker.trial_ended(kl, trial(), outcome, None)
    tracker.campaign_ended(4)
    run = Reader(info.folder).one("trial")
    assert (run.info.status, run.data.tags[tag[0]]) == (status, tag[1])
    assert "objective" not in run.data.metrics
    assert Reader(info.folder).one("campaign").info.status == "FINISHED"


def test_a_trial_known_from_an_earlier_stage_stands_beside_the_others_with_its_curve(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.stage_started(minibatch)
    for _ in range(2):  # a sampler may propose a known trial again
        tracker.trial_ended(minibatch, trial(), finished(0.5), score(1.0))
    tracker.campaign_ended(0)
    seen = Reader(info.folder)
    run = seen.one("trial")
    expected = finished(0.5).curve
    logged = [(s, v) for s, v in zip(expected.steps, expected.score, strict=True) if not math.isnan(v)]
    assert seen.history(run, "score") == logged
    assert run.data.params == {MINI: "256", "seed": "0"}
    assert run.data.tags["sweep.reused"] == "true"


def test_what_is_not_finite_is_left_out_and_the_rest_of_the_step_stays(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.trial_started(kl, proposal(), trial(), info.folder)
    tracker.stepped(kl, trial(), 1, {"critic/score/mean": math.nan, "actor/grad_norm": math.inf, "actor/lr": 1e-6})
    tracker.campaign_ended(1)
    run = Reader(info.folder).one("trial")
    assert run.data.metrics == {"lr": 1e-6}
    assert run.info.status == "KILLED"


def test_a_second_session_goes_on_in_the_same_runs_and_settles_what_a_dead_one_left(
    info: CampaignInfo, tmp_path: Path
) -> None:
    script = f"""
import os
from pathlib import Path
from sweep.adapters.mlflow_tracker import MlflowTracker
from sweep.ports import CampaignInfo
from tests.adapters.store_stages import KL, kl, proposal, trial
tracker = MlflowTracker.open("", "a1", Path({str(tmp_path)!r}))
tracker.campaign_started(CampaignInfo("a1", Path({str(tmp_path)!r}), ("kl",)))
tracker.stage_started(kl)
for settings in ({{}}, {{KL: 0.002}}):
    tracker.trial_started(kl, proposal(settings), trial(settings), Path("x"))
    tracker.stepped(kl, trial(settings), 1, {{"critic/score/mean": 0.25}})
tracker._outbox.put(lambda: (tracker._send_steps(), os._exit(9)))
tracker._outbox.close(100)
"""
    assert subprocess.run([sys.executable, "-c", script], cwd=os.getcwd(), timeout=300).returncode == 9
    left = Reader(tmp_path)
    assert [run.info.status for run in left.runs("trial")] == ["RUNNING", "RUNNING"]
    living = _foreign_run(left, owner_of(tmp_path), Holder.this_process())
    stranger = _foreign_run(left, "another sweep", replace(Holder.this_process(), pid=2**22 + 1))

    done = {trial({KL: 0.002}).id: finished(0.7)}
    tracker = MlflowTracker.open("", "a1", tmp_path, find=done.get)
    tracker.campaign_started(info)
    tracker.stage_started(kl)
    tracker.trial_started(kl, proposal(), trial(), tmp_path)
    step(tracker, 1, 0.3)
    tracker.trial_ended(kl, trial(), finished(0.3), score(0.3))
    tracker.campaign_ended(0)

    seen = Reader(tmp_path)
    again, finished_run = seen.runs("trial")[-1], seen.runs("trial")[0]
    assert len(seen.runs("campaign")) == len(seen.runs("stage")) == 1
    assert finished_run.info.status == "FINISHED"
    assert finished_run.data.tags["sweep.trial"] == trial({KL: 0.002}).id
    assert len(seen.history(finished_run, "step_seconds")) == 20
    assert seen.history(again, "score") == [(1, 0.3)]
    lost = seen.one("attempt")
    assert (lost.info.status, lost.data.tags["mlflow.parentRunId"]) == ("FAILED", again.info.run_id)
    for untouched in (living, stranger):
        assert seen.client.get_run(untouched).info.status == "RUNNING"


def _foreign_run(seen: Reader, owner: str, holder: Holder) -> str:
    tags = {"sweep.kind": "trial", "sweep.owner": owner, "sweep.session": json.dumps(asdict(holder))}
    return str(seen.client.create_run(seen.experiment_id, tags={**tags, "sweep.trial": "ffff"}).info.run_id)


def test_a_fault_after_the_start_is_warned_about_once_and_raises_nothing(
    info: CampaignInfo, caplog: pytest.LogCaptureFixture
) -> None:
    client, experiment_id = connect("", "a1", info.folder)
    broken = RunTree(client, experiment_id + "999", "owner", Holder.this_process())
    tracker = MlflowTracker(MlflowWriter(broken, "a1", {}))
    with caplog.at_level(logging.WARNING, "sweep"):
        tracker.campaign_started(info)
        tracker.stage_started(kl)
        tracker.trial_started(kl, proposal(), trial(), info.folder)
        step(tracker, 1, 0.1)
        tracker.trial_ended(kl, trial(), finished(), score(0.5))
        tracker.campaign_ended(0)
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "the campaign goes on" in caplog.text and "the trial storage has everything" in caplog.text


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://user:hush@127.0.0.1:9/", "cannot be reached: Connection refused; start that server"),
        ("postgresql://user:hush@127.0.0.1:9/x", "cannot be opened"),
        ("sqlite:////proc/no/such/mlflow.db", "cannot be opened"),
        ("nonsense://user:hush@host/x", "cannot be reached"),
    ],
)
def test_a_server_that_cannot_be_reached_ends_the_start_with_one_message_without_secrets(
    tmp_path: Path, uri: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        MlflowTracker.open(uri, "a1", tmp_path)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_deleted_experiment_is_named_with_the_way_back(tmp_path: Path) -> None:
    seen = Reader(tmp_path)
    seen.client.delete_experiment(seen.experiment_id)
    with pytest.raises(ConfigError, match="experiments restore"):
        MlflowTracker.open("", "a1", tmp_path)


def test_a_campaign_can_be_tracked_in_postgresql(info: CampaignInfo, postgres_database: str) -> None:
    tracker = MlflowTracker.open(postgres_database, "a1", info.folder)
    tracker.campaign_started(info)
    tracker.trial_started(kl, proposal(), trial(), info.folder)
    step(tracker, 1, 0.5)
    tracker.trial_ended(kl, trial(), finished(), score(0.5))
    tracker.campaign_ended(0)
    client, experiment_id = connect(postgres_database, "a1", info.folder)
    (run,) = client.search_runs([experiment_id], "tags.`sweep.kind` = 'trial'")
    assert (run.info.status, run.data.metrics["score"]) == ("FINISHED", 0.5)


def test_four_processes_that_open_one_new_database_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from sweep.adapters.mlflow_connection import connect; "
        "connect(*sys.argv[1:3], pathlib.Path(sys.argv[3]))"
    )
    uri = f"sqlite:///{tmp_path}/shared.db"
    started = [
        subprocess.Popen([sys.executable, "-c", code, uri, f"a{n % 2}", str(tmp_path)], stderr=subprocess.PIPE)
        for n in range(4)
    ]
    said = [p.communicate()[1].decode()[-2000:] for p in started]
    assert [p.returncode for p in started] == [0] * 4, said


def test_a_run_without_settings_is_called_the_baseline_and_a_value_keeps_its_type() -> None:
    from sweep.adapters.mlflow_runs import titled, tuned

    assert titled(kl, trial(), NOTHING) == "baseline seed 0"
    long = Trial(Overrides.of({KL: 0.002, "data.other": True}), 4, 20)
    assert titled(kl, long, long.overrides) == "kl_coef=0.002 seed 4"
    assert tuned(kl, long, long.overrides) == {KL: 0.002, "data.other": True, "seed": 4}


def test_readings_of_a_trials_hardware_are_system_metrics_of_its_run_by_the_second(info: CampaignInfo) -> None:
    tracker = MlflowTracker.open("", "a1", info.folder)
    tracker.campaign_started(info)
    tracker.stage_started(kl)
    name = "system/gpu_0_utilization_percentage"
    tracker.system_metrics(trial().id, 1_000, {name: 1.0})  # before it began
    tracker.trial_started(kl, proposal(), trial(), info.folder / trial().id)
    for at_ms, value in ((10_000, 20.0), (12_000, 90.0), (14_100, 95.0)):
        tracker.system_metrics(trial().id, at_ms, {name: value, "system/gpu_1_processes": 2.0})
    tracker.system_metrics("somebody-else", 12_000, {name: 7.0})
    step(tracker, 1, 0.5)
    tracker.trial_ended(kl, trial(), finished(0.5), score(0.5))
    tracker.system_metrics(trial().id, 20_000, {name: 3.0})  # after it ended
    tracker.campaign_ended(0)

    seen = Reader(info.folder)
    assert seen.history(seen.one("trial"), name) == [(0, 20.0), (2, 90.0), (4, 95.0)]
    assert seen.history(seen.one("trial"), "system/gpu_1_processes") == [(0, 2.0), (2, 2.0), (4, 2.0)]
    assert seen.history(seen.one("trial"), "score") == [(1, 0.5)]


def test_a_tracking_that_is_no_address_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be the address of .* such as http://HOST:PORT, got 'elsewhere'"):
        MlflowTracker.open("elsewhere", "a1", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_mark_of_a_campaign_is_made_once_and_anew_where_a_driver_died_while_it_wrote(tmp_path: Path) -> None:
    first = owner_of(tmp_path)
    assert first and owner_of(tmp_path) == first
    (tmp_path / ".tracking-owner").write_text("")
    assert owner_of(tmp_path)
    (tmp_path / ".tracking-owner").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"tracking-owner cannot be read: .*; remove it"):
        owner_of(tmp_path)


def test_tables_whose_making_was_cut_off_are_made_anew(tmp_path: Path) -> None:
    """As kill -9 leaves them: a table that a migration was about to rename, and one that it had made."""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.executescript("CREATE TABLE _alembic_tmp_experiments (a); CREATE TABLE logged_models (a);")
    mark = tmp_path / ".mlflow.db.unfinished"
    mark.touch()
    client, experiment_id = connect("", "a1", tmp_path)
    assert client.get_experiment(experiment_id).name == "a1"
    assert not mark.exists()


def test_the_mark_of_unfinished_tables_stays_where_their_making_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mlflow_connection, "_experiment", killed)
    with pytest.raises(KeyboardInterrupt):
        connect("", "a1", tmp_path)
    assert (tmp_path / ".mlflow.db.unfinished").exists()


def test_a_file_that_mlflow_cannot_use_is_to_be_moved_away_and_a_full_disk_to_be_cleared() -> None:
    def fails(message: str) -> str:
        def action() -> None:
            raise ValueError(message)

        with pytest.raises(ConfigError) as refused:
            _explained("sqlite:////x/mlflow.db", action)
        return str(refused.value)

    assert "move mlflow.db away" in fails("Detected out-of-date database schema")
    assert "make room" in fails("database or disk is full")
