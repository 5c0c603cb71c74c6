"""`OwnProcess`: a Python process in a session of its own, its console in a file, that leaves nothing behind.

It is told to end when its parent thread dies, and `end` waits until every process of its session is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from sweep.errors import ConfigError

TERM_SECONDS = 20.0
"""How long it may take to end by itself once it is asked; vLLM frees its GPU in a few. Ours."""

KILL_SECONDS = 30.0
"""How long killed processes may take to disappear; one in the middle of a CUDA call takes seconds. Ours."""

LOG_BYTES = 1 << 20
"""The end of the console that is read to find out what happened. Ours."""

END_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"  # PR_SET_PDEATHSIG survives exec; vLLM ends its children on SIGTERM
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
)
"""Runs Python with the arguments from the second on, such that SIGTERM reaches it when the process whose id is the
first argument is gone."""


class OwnProcess:
    """Started on construction. Start it from a thread that lives as long as it should."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log_path: Path) -> None:
        """Raises: ConfigError: if there can be no console at the path."""
        self.log_path = log_path
        with _console(log_path) as console:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", END_WITH_PARENT, str(os.getpid()), *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process; also the id of its session and group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def log_text(self, start: int = 0) -> str:
        """The console from a byte offset on, its end if that is long."""
        with self.log_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - LOG_BYTES))
            return file.read().decode(errors="replace")

    def end(self) -> list[int]:
        """Ask, then kill; the ids of processes that are still there, normally none. Safe to call again."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(TERM_SECONDS)
        until = time.monotonic() + KILL_SECONDS
        while (left := self.members()) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.05)
        return left

    def members(self) -> list[int]:
        """The processes of the session that still run."""
        own = self._process.pid
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [pid for pid in pids if _session(pid) == own]

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _console(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise ConfigError(
            f"the console {path} cannot be written: {error.strerror}; choose a folder that can be"
        ) from error


def _session(pid: int) -> int:
    """The session of a process, -1 for one that is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[3])
