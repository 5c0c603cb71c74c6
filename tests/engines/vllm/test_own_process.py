"""Processes of our own, real ones: what they inherit, and that ending them ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.engines.vllm import own_process
from sweep.engines.vllm.own_process import OwnProcess

FAMILY = (
    "import os, subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print(child.pid, flush=True); time.sleep(600)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def eventually(condition: object, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_its_console_is_appended_to_and_its_environment_added_to(tmp_path: Path) -> None:
    console = tmp_path / "logs" / "console"
    for word in ("one", "two"):
        process = OwnProcess(["-c", "import os; print(os.environ['WORD'])"], {"WORD": word}, console)
        eventually(lambda process=process: process.exit_code() == 0)
    assert console.read_text() == "one\ntwo\n"
    assert process.log_text(start=4) == "two\n"


def test_ending_it_ends_its_children_too(tmp_path: Path) -> None:
    process = OwnProcess(["-c", FAMILY], {}, tmp_path / "console")
    eventually(process.log_text)
    child = int(process.log_text())
    assert {process.pid, child} <= set(process.members())
    assert process.end() == []
    assert not running(process.pid) and not running(child)
    assert process.end() == []


def test_one_that_ignores_the_request_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "TERM_SECONDS", 0.2)
    process = OwnProcess(["-c", STUBBORN], {}, tmp_path / "console")
    eventually(process.log_text)
    assert process.end() == []
    assert process.exit_code() == -signal.SIGKILL


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    starter = (
        "import sys, time; from pathlib import Path; from sweep.engines.vllm.own_process import OwnProcess; "
        f"p = OwnProcess(['-c', 'import time; time.sleep(600)'], {{}}, Path({str(tmp_path / 'console')!r})); "
        "time.sleep(0.5); print(p.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert running(pid)
    parent.kill()
    parent.wait()
    eventually(lambda: not running(pid))
