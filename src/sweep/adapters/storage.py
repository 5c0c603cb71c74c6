"""Opens the database behind a URL: `open_storage`, `open_engine`, `patiently`, `with_driver`, `storage_warning`,
`table_maker_alone`.

Hides drivers, pragmas, retries and secrets. Knows nothing about trials.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from sweep.adapters.redaction import redacted
from sweep.errors import StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa
    from optuna.storages import BaseStorage

Result = TypeVar("Result")
log = logging.getLogger(__name__)

POSTGRES_DRIVERS = ("psycopg2", "psycopg")

BUSY_SECONDS = 30.0
"""How long SQLite waits for another process's write lock. Ours: ten times the slowest commit seen."""

CONNECT_SECONDS = 10
"""How long a database server may take to answer the first connection. Ours."""

PATIENCE_SECONDS = 600.0
"""How long a lost connection, a lock or a full disk pauses the campaign before it gives up. Ours: a server restart."""

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0
"""Bounds of the doubling wait between two tries. Ours."""

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "ceph", "beegfs", "fuse.sshfs", "9p"}
)
"""File systems on which SQLite's locks do not hold. Source: SQLite's FAQ 5; optuna issues 820 and 815."""


def with_driver(url: str) -> str:
    """The URL with the PostgreSQL driver that is installed, where it names none; other URLs as they are.

    SQLAlchemy 2.1 takes `postgresql://` for psycopg, 2.0 for psycopg2.
    """
    scheme, separator, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres") or not separator:
        return url
    driver = next((name for name in POSTGRES_DRIVERS if importlib.util.find_spec(name)), POSTGRES_DRIVERS[0])
    return f"postgresql+{driver}://{rest}"


def open_storage(url: str, *, reader: bool = False) -> BaseStorage:
    """Optuna's storage behind the URL, its tables made if missing.

    For a `reader` a SQLite file that cannot be written, as on a file system mounted to read only, will do.

    Raises:
        StoreError: if it cannot be opened; names what would work and shows no secret.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = with_driver(url)
    path = sqlite_path(url)
    if reader and path is not None and path.is_file() and not _is_writable(path):
        only_read = _read_only_url(path)
        return _explained(url, lambda: optuna.storages.RDBStorage(only_read, skip_table_creation=True))
    arguments = _engine_arguments(url)
    with table_maker_alone(url):
        return _explained(url, lambda: _twice(lambda: optuna.storages.RDBStorage(url, engine_kwargs=arguments)))


def open_engine(url: str) -> sa.Engine:
    """A SQLAlchemy engine on the URL, connected once.

    Raises:
        StoreError: as for `open_storage`.
    """
    import sqlalchemy as sa

    url = with_driver(url)
    arguments = _engine_arguments(url)

    def connected() -> sa.Engine:
        engine = sa.create_engine(url, **arguments)
        engine.connect().close()
        return engine

    return _explained(url, connected)


def patiently(action: Callable[[], Result], what: str, patience_seconds: float = PATIENCE_SECONDS) -> Result:
    """What the action returns, tried again while the database is unreachable, locked or full.

    The action must be safe to repeat.

    Raises:
        StoreError: if the database does not come back in time.
    """
    import sqlalchemy as sa
    from optuna.exceptions import StorageInternalError

    deadline = time.monotonic() + patience_seconds
    wait = FIRST_WAIT_SECONDS
    while True:
        try:
            return action()
        except (StorageInternalError, sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError) as error:
            cause = _first_line(error.__cause__ or error)
            if time.monotonic() + wait > deadline:
                raise StoreError(
                    f"cannot {what}: the storage failed for {patience_seconds:.0f} s ({cause}); nothing recorded is "
                    "lost: mend it and run the same command again"
                ) from None
            if wait == FIRST_WAIT_SECONDS:
                log.warning("storage fault, the campaign waits (%s): %s", what, cause)
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def storage_warning(url: str, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Why this storage is at risk, None if it is not: a SQLite file on a network file system."""
    path = sqlite_path(url)
    if path is None or not mounts.is_file():
        return None
    rows = [line.split() for line in mounts.read_text().splitlines()]
    under = [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]
    holding = [(len(point), kind) for point, kind in under if path.is_relative_to(point)]
    kind = max(holding, default=(0, ""))[1]
    if kind not in NETWORK_FILE_SYSTEMS:
        return None
    return (
        f"{path} lies on the network file system {kind}, where SQLite's locks do not hold: let this driver be the "
        f"single writer, or use a server database (storage=postgresql://...); a locked database is tried again for "
        f"{PATIENCE_SECONDS:.0f} s"
    )


@contextmanager
def table_maker_alone(url: str) -> Iterator[None]:
    """No two processes of this host make tables in one SQLite file at a time; nothing is locked for a server."""
    path = sqlite_path(url)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # goes with the handle, also when the process is killed
        yield


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL, None for any other database.

    Raises:
        StoreError: if the URL cannot be parsed, or is SQLite without a file.
    """
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
        dialect = parsed.get_backend_name()
    except (sa.exc.ArgumentError, ValueError):
        raise StoreError(
            f"storage {redacted(url)} is not a database URL; try sqlite:////folder/optuna.db or "
            "postgresql://user@host/database (special characters in a password as %XX)"
        ) from None
    if dialect != "sqlite":
        return None
    if parsed.database in (None, "", ":memory:"):
        raise StoreError("storage sqlite:// without a file would lose every trial; try sqlite:////folder/optuna.db")
    return Path(str(parsed.database)).absolute()


def _is_writable(path: Path) -> bool:
    """Whether SQLite can write to the file, and beside it, where it keeps what is not yet in the file."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_only_url(path: Path) -> str:
    """The URL by which the file is read and nothing is written beside it.

    `mode=ro` reads what a driver has not yet put into the file, which lies beside it; where that is not there it cannot
    be made, and the file, which is then whole, is opened as one that does not change. Source: SQLite, "Read-Only WAL
    Databases".
    """
    error: Exception | None = None
    for mode in ("mode=ro", "immutable=1"):
        address = f"file:{quote(str(path))}?{mode}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
                connection.execute("SELECT count(*) FROM studies")
            return f"sqlite:///{address}&uri=true"
        except sqlite3.Error as refused:
            error = refused
    raise StoreError(f"storage sqlite:///{path} cannot be read: {error}; give the storage of a campaign that was begun")


DAMAGED = "not a database|malformed|disk image"
"""How SQLite says that a file is there and is not whole. Source: sqlite3's errors SQLITE_NOTADB and SQLITE_CORRUPT."""


def _engine_arguments(url: str) -> dict[str, Any]:
    path = sqlite_path(url)
    if path is None:
        slow = {"connect_timeout": CONNECT_SECONDS} if url.startswith(("postgresql", "mysql")) else {}
        return {"pool_pre_ping": True, "connect_args": slow}
    _prepare_sqlite(path, shared=storage_warning(url) is not None)
    return {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}


def _prepare_sqlite(path: Path, shared: bool) -> None:
    """The file exists, is a database and, on a local disk, writes ahead, so that readers never block the driver.

    Of two connections that both change how a new file is written, SQLite refuses one at once, however long it may
    wait otherwise, since each would wait for the other; that one tries again.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
                connection.execute(f"PRAGMA journal_mode={'DELETE' if shared else 'WAL'}")
                connection.execute("BEGIN IMMEDIATE")  # refused unless the file can be written
                connection.rollback()
            return
        except (OSError, sqlite3.Error) as error:
            if "locked" not in str(error) or time.monotonic() > until:
                reason = f"storage sqlite:///{path} cannot be opened: {error}"
                raise StoreError(f"{reason}; {_way_out(path, error)}") from None
        time.sleep(FIRST_WAIT_SECONDS * random.random())


def _way_out(path: Path, error: Exception) -> str:
    """What would work, where the file is damaged and where it cannot be reached."""
    if re.search(DAMAGED, str(error)):
        return f"put a copy back in its place, or move {path.name} away to begin anew"
    return "give a file in a writable folder on a local disk"


def _explained(url: str, action: Callable[[], Result]) -> Result:
    """What the action returns; every way in which a database refuses becomes a StoreError without secrets."""
    import sqlalchemy as sa
    from optuna.exceptions import OptunaError

    try:
        return action()
    except ImportError as error:
        missing = error.name or (error.__cause__.name if isinstance(error.__cause__, ImportError) else None)
        raise StoreError(
            f"storage {redacted(url)} needs the Python package {missing}; pip install it (PostgreSQL: sweep[postgres])"
        ) from None
    except (sa.exc.SQLAlchemyError, OptunaError, RuntimeError) as error:
        raise StoreError(
            f"storage {redacted(url)} cannot be opened: {_first_line(error)}; check host, port, database, user and "
            "rights, or leave the storage out to use a file in the campaign's folder"
        ) from None


def _twice(action: Callable[[], Result]) -> Result:
    """What the action returns, tried once more if another process was making the same tables."""
    import sqlalchemy as sa

    try:
        return action()
    except (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
        if not re.search(r"already exists|duplicate|unique", str(error), re.IGNORECASE):
            raise
        time.sleep(1.0)
        return action()


def _first_line(error: BaseException) -> str:
    """The driver's own message, without SQLAlchemy's statement, parameters and links."""
    original = getattr(error, "orig", None) or error
    return (str(original).strip().splitlines() or [type(original).__name__])[0]
