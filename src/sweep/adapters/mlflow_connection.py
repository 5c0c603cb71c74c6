"""Opens MLflow for a campaign: `connect`, `owner_of`. Fails clearly and soon, or works."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sweep.adapters.redaction import redacted
from sweep.adapters.storage import open_engine, sqlite_path, table_maker_alone, with_driver
from sweep.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Result = TypeVar("Result")

IMPATIENT_OPTIONS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""MLflow's own defaults let an unreachable server take minutes to say so. Ours; a user's environment wins."""

SERVERS = r"https?:|databricks"
"""Tracking URIs behind which somebody else decides where artifacts go."""

KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Lets MLflow's page open on runs and curves, not on traces of language models. Source: the tag that its page reads."""

UNREACHED = r"Caused by .*(?:\[Errno -?\d+\] |: )([\w ,.]+)"
"""The cause, inside the text that requests and urllib3 wrap around it."""

TABLE_TRIES = 5
"""Tries to open a database in which other processes may be making MLflow's tables. Ours."""


def connect(tracking_uri: str, campaign: str, folder: Path) -> tuple[MlflowClient, str]:
    """A client and the id of the campaign's experiment; without a URI a SQLite file in the campaign's folder.

    The tables are made here, before anything else may use them.

    Raises:
        ConfigError: if MLflow cannot be reached; names what would work and shows no secret.
    """
    uri = with_driver(tracking_uri) or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    if not re.match(r"[\w+]+://|databricks", uri):
        raise ConfigError(
            f"tracking must be the address of a server or database such as http://HOST:PORT, got {redacted(uri)!r}; "
            "leave it out to use a file in the campaign's folder"
        )
    for name, value in IMPATIENT_OPTIONS.items():
        os.environ.setdefault(name, value)
    try:
        if re.match(r"(sqlite|postgresql|mysql|mssql)\b", uri):
            path = sqlite_path(uri)
            if path is not None and path.resolve() == (folder / "mlflow.db").resolve():
                with table_maker_alone(uri), _made_whole(path):
                    open_engine(uri).dispose()  # MLflow itself would retry for minutes
                    return _explained(uri, lambda: _experiment(uri, campaign, folder))
            open_engine(uri).dispose()
            with table_maker_alone(uri):
                return _explained(uri, lambda: _experiment(uri, campaign, folder))
        return _explained(uri, lambda: _experiment(uri, campaign, folder))
    except StoreError as error:
        raise ConfigError(f"tracking: {error}") from None
    except OSError as error:
        raise ConfigError(f"tracking: cannot write {folder}: {error.strerror}; make room for it") from None


@contextmanager
def _made_whole(path: Path) -> Iterator[None]:
    """Tables that are being made in the file have a mark beside them until they are done: with the mark still there
    the maker died over them, no run was logged yet, and they are made anew. Call it with no other maker at work.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    if unfinished.exists():
        for end in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + end).unlink(missing_ok=True)
    if not path.exists():
        unfinished.touch()
    yield
    unfinished.unlink(missing_ok=True)


def owner_of(folder: Path) -> str:
    """The mark of the campaign in this folder, made once: two campaigns of one name never touch each other's runs.

    Raises:
        ConfigError: if it cannot be read or written.
    """
    path = folder / ".tracking-owner"
    try:
        if not path.exists() or not path.read_text().strip():  # empty: a driver died while it wrote
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(secrets.token_hex(8) + "\n")
        return path.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}; remove it, and the campaign's runs are logged anew"
        ) from None


def _experiment(uri: str, campaign: str, folder: Path) -> tuple[MlflowClient, str]:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    for noisy in ("mlflow", "alembic"):  # after the import, which sets its own level
        logging.getLogger(noisy).setLevel(logging.WARNING)
    client = MlflowClient(tracking_uri=uri)
    artifacts = None if re.match(SERVERS, uri) else (folder / "mlartifacts").absolute().as_uri()
    found = client.get_experiment_by_name(campaign)
    if found is None:
        try:
            return client, str(client.create_experiment(campaign, artifact_location=artifacts, tags=KIND))
        except MlflowException:
            found = client.get_experiment_by_name(campaign)  # another process made it just now
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise ConfigError(
            f"the MLflow experiment {campaign} was deleted there; restore it (mlflow experiments restore) or choose "
            "another campaign=NAME"
        )
    return client, str(found.experiment_id)


def _explained(uri: str, action: Callable[[], Result]) -> Result:
    """What the action returns, again after a moment if another process was making the tables."""
    import sqlalchemy as sa
    from mlflow.exceptions import MlflowException

    for left in reversed(range(TABLE_TRIES)):
        try:
            return action()
        except (MlflowException, sa.exc.SQLAlchemyError, OSError, ImportError, ValueError) as error:
            racing = re.search(r"already exists|duplicate|unique|locked|no such table", str(error), re.IGNORECASE)
            if not (racing and left):
                why = (str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__])[0]
                refused = re.search(UNREACHED, why)
                why = refused.group(1) if refused else why
                shown = why.replace(uri, redacted(uri))
                raise ConfigError(
                    f"tracking {redacted(uri)} cannot be reached: {shown}; {_way_out(uri, why)}"
                ) from None
        time.sleep(1.0)
    raise AssertionError("the last try returns or raises")


def _way_out(uri: str, why: str) -> str:
    """What would work, for a file and for a server."""
    path = sqlite_path(uri) if uri.startswith("sqlite") else None
    if path is None:
        return "start that server, or leave tracking out to use a file in the campaign's folder"
    if re.search(r"\bfull\b", why):
        return "make room for it and run the same command again"
    return f"move {path.name} away to begin a new one: the trial storage has every trial"
