"""MLflow runs through its client and straight from a run's folder."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sweep.errors import ConfigError
from sweep.health.readers.mlflow_run import read_tracking
from sweep.health.readers.open_log import read_runs


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking database with one run as verl logs it and one that logged nothing."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "ml.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    experiment = client.create_experiment("p")
    run = client.create_run(experiment, run_name="t17").info.run_id
    client.create_run(experiment, run_name="empty")
    client.log_param(run, "algorithm/use_kl_in_reward", "True")
    for step in range(1, 4):
        client.log_metric(run, "critic/score/mean", 0.25 * step, step=step, timestamp=step)
    client.log_metric(run, "val-core/x/acc/mean_at_1", 0.5, step=2)
    client.log_metric(run, "actor/grad_norm", math.nan, step=3)
    client.log_metric(run, "actor/kl_loss", math.inf, step=3)
    return path


def test_a_database_gives_the_one_run_that_has_metrics_with_its_own_names(database: Path) -> None:
    (run,) = read_runs(str(database))
    rows = dict(run.table.rows())
    assert run.label == "t17"
    assert rows[2] == {"critic/score/mean": 0.5, "val-core/x/acc/mean@1": 0.5}
    assert math.isnan(rows[3]["actor/grad_norm"]) and rows[3]["actor/kl_loss"] == math.inf


def test_parameters_become_the_configuration(database: Path) -> None:
    (run,) = read_runs(f"sqlite:///{database}", "t17")
    assert run.config == {"algorithm.use_kl_in_reward": "True"}


def test_an_unknown_run_is_answered_with_those_there_are(database: Path) -> None:
    with pytest.raises(ConfigError, match="t17"):
        read_runs(str(database), "t18")


def test_a_store_that_cannot_be_reached_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read runs"):
        read_tracking(f"sqlite:///{tmp_path}/x.db", None)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\x00" + b"garbage" * 1000)
    with pytest.raises(ConfigError, match="cannot read runs"):
        read_runs(str(path))


def _file_store(root: Path, *runs: str) -> Path:
    for run in runs:
        folder = root / "0" / run
        (folder / "metrics" / "critic" / "score").mkdir(parents=True)
        (folder / "params" / "algorithm").mkdir(parents=True)
        (folder / "metrics" / "critic" / "score" / "mean").write_text("1 0.25 1\n2 0.5 2\nbroken\n3 nan 3\n")
        (folder / "params" / "algorithm" / "lam").write_text("0.95")
    return root


def test_a_run_folder_is_read_without_a_client(tmp_path: Path) -> None:
    (run,) = read_runs(str(_file_store(tmp_path, "a1") / "0" / "a1"))
    rows = dict(run.table.rows())
    assert rows[2] == {"critic/score/mean": 0.5} and math.isnan(rows[3]["critic/score/mean"])
    assert run.config == {"algorithm.lam": "0.95"}


def test_a_file_store_with_several_runs_wants_to_know_which(tmp_path: Path) -> None:
    store = _file_store(tmp_path, "a1", "b2")
    with pytest.raises(ConfigError, match=r"a1.*b2"):
        read_runs(str(store))
    (run,) = read_runs(str(store), "b2")
    assert run.label == "b2"
