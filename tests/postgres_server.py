"""`PostgresServer`: a real PostgreSQL in a temporary folder on a loopback port, for tests.

PostgreSQL refuses to run as root, so root starts it as an unprivileged user. Ends with the test run.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ACCOUNTS = ("postgres", "nobody")
PASSWORD = "not/a:secret"


class PostgresServer:
    """A server whose superuser is `tester`. Raises FileNotFoundError if PostgreSQL is not installed."""

    def __init__(self) -> None:
        self._binaries = find_binaries()
        self._account = None if os.geteuid() else next(n for n in ACCOUNTS if _exists(n))
        self._folder = Path(tempfile.mkdtemp(prefix="sweep-pg-"))
        if self._account:
            shutil.chown(self._folder, self._account)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        secret = self._folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", "data", "-U", "tester", "--pwfile=secret", "-A", "scram-sha-256", "-N", "-E", "UTF8",
            "--locale=C",
        )  # fmt: skip
        self._databases = 0
        self.start()

    def start(self) -> None:
        """The server accepts connections."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-t", "110", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """The server is down; `immediate` is a crash, `fast` ends its sessions first."""
        self._run("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def close(self) -> None:
        """The server is down and its folder gone."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        import psycopg2

        self._databases += 1
        name = f"t{self._databases}_{int(time.time())}"
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user="tester", password=PASSWORD, dbname="postgres"
        )
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {name}")
        connection.close()
        return f"postgresql://tester:not%2Fa%3Asecret@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self._folder,
            user=self._account,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )


def find_binaries() -> Path:
    """The folder with PostgreSQL's programs, the newest version first; FileNotFoundError without one."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    if found is None:
        raise FileNotFoundError("no PostgreSQL server programs; apt-get install postgresql")
    return Path(found).parent


def _exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True
