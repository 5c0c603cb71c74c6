"""MLflow runs: through the client for a database or a server, straight from the files for a run's folder.

verl's names come back as they were (`_at_` was `@`); parameters become the run's configuration with dotted keys. A
tracking store keeps infinity as the largest float; it is turned back. mlflow is imported only for a client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError
from sweep.health.metric_table import MetricTable
from sweep.health.readers.logged_run import LoggedRun

LARGEST_FLOAT = 1.7976931348623157e308
"""What MLflow's stores put for infinity. Source: mlflow store/tracking/sqlalchemy_store.py."""

SQLITE = "sqlite:///"
"""How an address of a database file begins."""

LISTED_RUNS = 10
"""Runs that an error names."""


def is_run_folder(path: Path) -> bool:
    """Whether the folder is one run of MLflow's file store."""
    return (path / "metrics").is_dir()


def is_file_store(path: Path) -> bool:
    """Whether the folder is a file store: experiments that hold runs."""
    return path.is_dir() and any(path.glob("*/*/metrics"))


def read_run_folder(path: Path) -> LoggedRun:
    """The run in a file store's folder, without mlflow.

    Raises:
        ConfigError: it holds no metric.
    """
    metrics = path / "metrics"
    points = [
        (_own_name(str(file.relative_to(metrics))), step, time, value)
        for file in sorted(metrics.rglob("*"))
        if file.is_file()
        for step, time, value in _points_of(file)
    ]
    params = path / "params"
    config = {
        _dotted(str(file.relative_to(params))): file.read_text("utf-8", "replace")
        for file in sorted(params.rglob("*"))
        if file.is_file()
    }
    return _logged(path.name, points, config)


def read_file_store(path: Path, run: str | None) -> LoggedRun:
    """The one run of a file store that has metrics, or the one that `run` names.

    Raises:
        ConfigError: there is none, or several and none was named.
    """
    folders = {f.parent.name: f.parent for f in sorted(path.glob("*/*/metrics"))}
    return read_run_folder(folders[_choose(run, {name: "" for name in folders}, str(path))])


def read_tracking(uri: str, run: str | None) -> LoggedRun:
    """The run, by id or name, of a tracking server or database.

    Raises:
        ConfigError: the store cannot be reached, there is no such run, or several and none was named.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
    from sqlalchemy.exc import SQLAlchemyError

    _require_database(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_run(_choose(run, _runs(client), uri))
        points = [
            (_own_name(key), point.step, point.timestamp, point.value)
            for key in found.data.metrics
            for point in client.get_metric_history(found.info.run_id, key)
        ]
    except ConfigError:
        raise
    except (MlflowException, SQLAlchemyError, OSError, ValueError) as error:
        raise ConfigError(f"cannot read runs from {uri}: {str(error).splitlines()[0][:300]}") from error
    config = {_dotted(key): value for key, value in found.data.params.items()}
    return _logged(found.info.run_name or found.info.run_id, points, config)


def _require_database(uri: str) -> None:
    """Returns only if a database file that is named exists: a client would create it."""
    path = uri.split("?")[0].removeprefix(SQLITE)
    if uri.startswith(SQLITE) and not Path(path).is_file():
        raise ConfigError(f"cannot read runs from {uri}: there is no file {path}")


def _runs(client: Any) -> dict[str, str]:
    """Run id to name, the latest first, of runs that logged a metric."""
    experiments = [e.experiment_id for e in client.search_experiments()]
    found = client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1000)
    return {r.info.run_id: r.info.run_name or "" for r in found if r.data.metrics}


def _choose(run: str | None, names: Mapping[str, str], where: str) -> str:
    """The id of the run asked for by id or unique name, or of the only one."""
    wanted = [i for i, name in names.items() if run in (i, name)] if run else list(names)
    if len(wanted) == 1:
        return wanted[0]
    listed = ", ".join(f"{i} {name}".strip() for i, name in list(names.items())[:LISTED_RUNS]) or "none"
    if run:
        raise ConfigError(f"{where} has {len(wanted)} runs called {run} that logged metrics; there are: {listed}")
    raise ConfigError(f"{where} has {len(wanted)} runs with metrics; name one with --run: {listed}")


def _points_of(file: Path) -> Iterator[tuple[int, int, float]]:
    """Step, time and value of each line `time value step`; damaged lines are left out."""
    for line in file.read_text("utf-8", "replace").splitlines():
        parts = line.split()
        try:
            yield (int(parts[2]) if len(parts) > 2 else 0), int(parts[0]), float(parts[1])
        except (ValueError, IndexError):
            continue


def _own_name(key: str) -> str:
    """verl's name of a metric: MLflow allows no `@`."""
    return key.replace("_at_", "@") if key.startswith("val") else key


def _dotted(key: str) -> str:
    return key.replace("/", ".")


def _logged(label: str, points: Iterable[tuple[str, int, int, float]], config: Mapping[str, object]) -> LoggedRun:
    ordered = sorted(points, key=lambda p: (p[1], p[2]))
    if not ordered:
        raise ConfigError(f"run {label} logged no metric")
    table = MetricTable.from_rows((step, {name: _restored(value)}) for name, step, _, value in ordered)
    return LoggedRun(label, table, (), config)


def _restored(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= LARGEST_FLOAT else value
