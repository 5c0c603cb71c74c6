"""`RuntimeHost`: runs one Python command on its node and is the mailbox between that command and the campaign.

Plain Python: `sweep.adapters.ray_launcher` makes a Ray actor of it, a test may use it as it is. Every method may be
called from any thread; those with `wait_seconds` block for at most so long. It knows nothing about what the commands
and messages mean, but for `gone`, which it adds itself when the process has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAILBOX_VARIABLE = "SWEEP_MAILBOX"
"""Environment variable with the host's name, in every process that belongs to its command."""

KEPT_RAY_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""What a process on the node needs of Ray's environment to connect as a driver of its own; all else of it describes
the worker that it was inherited from."""

KILL_SECONDS = 30.0
"""How long killed processes may take to disappear; a process in the middle of a CUDA call takes seconds. Ours."""

WATCH_SECONDS = 5.0
"""How often a host looks whether its campaign is still there. Ours."""

DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL: survives exec
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
)
"""Runs Python with the arguments from the second on, such that it dies with the process whose id is the first: a
campaign that is killed leaves no trainer behind. Not done between fork and exec, which is unsafe beside threads."""


class RuntimeHost:
    """A process in a session of its own, its console in an unnamed temporary file, and its mailbox.

    One driver has it at a time, the last one that called `attend`: a driver that was taken for dead must not end what
    another one goes on with. A host that no driver has called for `unattended_seconds` ends its process and says
    `abandoned`.
    """

    def __init__(
        self, name: str, label: Mapping[str, Any] | None = None, unattended_seconds: float | None = None
    ) -> None:
        self._name = name
        self._label = dict(label or {})
        self._owner = ""
        self._last: Mapping[str, Any] | None = None
        self._called_at = time.monotonic()
        if unattended_seconds is not None:
            threading.Thread(target=self._watch, args=(unattended_seconds,), daemon=True).start()
        self._changed = threading.Condition()
        self._commands: deque[Mapping[str, Any]] = deque()
        self._stops: dict[str, str] = {}
        self._messages: list[Mapping[str, Any]] = []
        self._count = 0
        self._console = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the host
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run Python with these arguments and the node's environment under these changes; the process id.

        Raises:
            OSError: if the interpreter cannot be started.
        """
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(list(arguments), dict(environment), started), daemon=True)
        thread.start()
        started.wait()
        if self._process is None:
            raise OSError(f"cannot run {sys.executable}: {self._failure}")
        return self._process.pid

    def attend(self, owner: str) -> dict[str, Any]:
        """The host belongs to this driver now; its label, last command, process id (0 without one) and exit code."""
        self._called_at = time.monotonic()
        with self._changed:
            self._owner = owner
        pid = 0 if self._process is None else self._process.pid
        return {"label": self._label, "command": self._last, "pid": pid, "exit_code": self.exit_code()}

    def send(self, command: Mapping[str, Any], answered: int = 0) -> None:
        """Queue a command for the process; the messages numbered up to `answered` are forgotten."""
        self._called_at = time.monotonic()
        with self._changed:
            self._messages = [m for m in self._messages if m["number"] > answered]
            self._commands.append(command)
            self._last = command
            self._changed.notify_all()

    def request_stop(self, trial_id: str, reason: str) -> None:
        """Let the process know, when it asks, that this trial shall stop."""
        with self._changed:
            self._stops[trial_id] = reason

    def receive(self, after: int, wait_seconds: float) -> list[Mapping[str, Any]]:
        """The messages with a `number` over `after`, waiting for the first."""
        self._called_at = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._count > after, timeout=wait_seconds)
            return [m for m in self._messages if m["number"] > after]

    def read_log(self, offset: int, max_bytes: int) -> bytes:
        """The console from a byte offset on."""
        return os.pread(self._console.fileno(), max_bytes, offset)

    def exit_code(self) -> int | None:
        """None while the process runs or before it started; negative for a signal."""
        return None if self._process is None else self._process.poll()

    def owned_by(self, owner: str) -> bool:
        """Whether this driver has the host."""
        return self._owner == owner

    def kill(self, owner: str = "") -> list[int]:
        """The ids of the processes that are still there; normally none. Does nothing if another driver has the host.

        Kills the process, its session, and every process on this node whose environment names this mailbox: Ray's
        workers of that job and what they spawned. No other.
        """
        if self._process is None or owner != self._owner:
            return []
        until = time.monotonic() + KILL_SECONDS
        while (left := self._members()) and time.monotonic() < until:
            for pid in left:
                _kill(pid)
            time.sleep(0.05)
        return left

    def take(self, wait_seconds: float) -> Mapping[str, Any] | None:
        """For the process: the next command, None if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands, timeout=wait_seconds)
            return self._commands.popleft() if self._commands else None

    def stop_request(self, trial_id: str) -> str:
        """For the process: why the trial shall stop, empty if it shall go on."""
        with self._changed:
            return self._stops.get(trial_id, "")

    def put(self, message: Mapping[str, Any]) -> None:
        """For the process: tell the campaign."""
        with self._changed:
            self._count += 1
            self._messages.append({**message, "number": self._count})
            self._changed.notify_all()

    def abandoned(self) -> None:
        """Called when the campaign is gone for good and the process has been ended."""

    def _watch(self, unattended_seconds: float) -> None:
        while time.monotonic() - self._called_at < unattended_seconds:
            time.sleep(min(WATCH_SECONDS, unattended_seconds))
        self.kill(self._owner)
        self.abandoned()

    def _run(self, arguments: list[str], environment: dict[str, str], started: threading.Event) -> None:
        """Start the process and wait for its end, in a thread that outlives it: it dies with its parent *thread*."""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *arguments],
                env=clean_environment(os.environ, {**environment, MAILBOX_VARIABLE: self._name}),
                stdin=subprocess.DEVNULL,
                stdout=self._console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._failure = str(error)
            return
        finally:
            started.set()
        code = self._process.wait()
        self.put({"type": "gone", "exit_code": code, "reason": ""})

    def _members(self) -> list[int]:
        assert self._process is not None
        session, tag = self._process.pid, f"{MAILBOX_VARIABLE}={self._name}".encode()
        return _processes(lambda pid: _session(pid) == session or tag in _environment(pid))


def clean_environment(inherited: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The environment for a Ray driver of its own: what a Ray worker was given for itself is left out."""
    kept = {k: v for k, v in inherited.items() if not k.startswith("RAY_") or k in KEPT_RAY_VARIABLES}
    if kept.get("CUDA_VISIBLE_DEVICES") == "":  # Ray hides the GPUs from an actor that asked for none
        del kept["CUDA_VISIBLE_DEVICES"]
    return {**kept, **changes}


def _processes(belongs: Callable[[int], bool]) -> list[int]:
    own = os.getpid()
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if pid != own and not _is_zombie(pid) and belongs(pid)]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _environment(pid: int) -> list[bytes]:
    """The variables that the process was started with; none if it is somebody else's or gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
