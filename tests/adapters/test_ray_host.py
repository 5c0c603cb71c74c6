"""The mailbox host as plain Python: the process it runs, the mailbox, and that nothing is left of either."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sweep.adapters.ray_host import MAILBOX_VARIABLE, RuntimeHost, clean_environment


@pytest.fixture
def host() -> Iterator[RuntimeHost]:
    found = RuntimeHost(f"test-host-{os.getpid()}")
    yield found
    assert found.kill() == []


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_the_process_runs_with_its_arguments_and_variables_and_its_console_can_be_read(host: RuntimeHost) -> None:
    host.start(["-c", "import os, sys; print(os.environ['COLOUR'], sys.argv[1:])", "a b", "c='d'"], {"COLOUR": "blue"})
    until(lambda: host.exit_code() is not None)
    assert host.read_log(0, 1000).decode() == "blue ['a b', \"c='d'\"]\n"
    assert host.read_log(5, 5).decode() == "['a b"
    assert host.read_log(1000, 10) == b""


@pytest.mark.parametrize(
    ("code", "exit_code"), [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.abort()", -6)]
)
def test_the_end_of_the_process_is_a_message_with_its_exit_code(host: RuntimeHost, code: str, exit_code: int) -> None:
    host.start(["-c", code], {})
    (message,) = host.receive(0, 20.0)
    assert message == {"type": "gone", "exit_code": exit_code, "reason": "", "number": 1}


def test_the_process_knows_its_mailbox(host: RuntimeHost) -> None:
    host.start(["-c", f"import os; print(os.environ['{MAILBOX_VARIABLE}'])"], {})
    host.receive(0, 20.0)
    assert host.read_log(0, 100).decode().strip() == f"test-host-{os.getpid()}"


def test_the_process_has_a_session_of_its_own(host: RuntimeHost) -> None:
    pid = host.start(["-c", "import time; time.sleep(60)"], {})
    assert os.getsid(pid) == pid != os.getsid(0)


def test_kill_ends_the_session_and_whoever_carries_the_mailbox_and_nobody_else(host: RuntimeHost) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    stranger = subprocess.Popen(sleeper)
    worker = subprocess.Popen(
        sleeper, env={**os.environ, MAILBOX_VARIABLE: f"test-host-{os.getpid()}"}, start_new_session=True
    )
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    pid = host.start(["-c", child + "print('up', flush=True); time.sleep(60)"], {})
    until(lambda: b"up" in host.read_log(0, 100))
    members = [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if _sid(p) == pid]
    assert len(members) == 2
    assert host.kill() == []
    worker.wait(5)
    assert not any(alive(p) for p in members)
    assert host.receive(0, 20.0)[-1]["exit_code"] == -9
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def _sid(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def test_a_process_does_not_outlive_a_host_that_is_killed() -> None:
    script = (
        "import sys, time; from sweep.adapters.ray_host import RuntimeHost; h = RuntimeHost('orphan-test');"
        "print(h.start(['-c', 'import time; time.sleep(60)'], {}), flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert alive(pid)
    owner.kill()
    owner.wait()
    until(lambda: not alive(pid))


def test_messages_are_numbered_and_can_be_read_again_until_they_are_acknowledged() -> None:
    host = RuntimeHost("h")
    for step in (1, 2, 3):
        host.put({"type": "step", "step": step})
    first = host.receive(0, 0.0)
    assert [m["number"] for m in first] == [1, 2, 3]
    assert host.receive(0, 0.0) == first
    assert [m["step"] for m in host.receive(2, 0.0)] == [3]
    assert host.receive(3, 0.0) == []


def test_receive_waits_for_the_first_message_and_no_longer() -> None:
    host = RuntimeHost("h")
    threading.Timer(0.2, host.put, [{"type": "ready"}]).start()
    start = time.monotonic()
    assert [m["type"] for m in host.receive(0, 20.0)] == ["ready"]
    assert 0.1 < time.monotonic() - start < 20
    start = time.monotonic()
    assert host.receive(1, 0.2) == []
    assert time.monotonic() - start > 0.15


def test_commands_are_taken_in_order_and_once() -> None:
    host = RuntimeHost("h")
    host.send({"type": "trial", "id": "a"})
    host.send({"type": "end"})
    assert [host.take(0.0), host.take(0.0), host.take(0.0)] == [{"type": "trial", "id": "a"}, {"type": "end"}, None]


def test_a_stop_request_is_seen_by_its_trial_only() -> None:
    host = RuntimeHost("h")
    host.request_stop("a", "score collapsed")
    assert (host.stop_request("a"), host.stop_request("b")) == ("score collapsed", "")


def test_killing_before_a_start_does_nothing() -> None:
    assert RuntimeHost("h").kill() == []


def test_rays_own_variables_are_kept_from_the_process_but_for_those_that_let_it_connect() -> None:
    inherited = {"RAY_JOB_ID": "1", "RAY_AUTH_MODE": "token", "HOME": "/h", "CUDA_VISIBLE_DEVICES": ""}
    changed = {"RAY_ADDRESS": "a:1", "HOME": "/x"}
    assert clean_environment(inherited, changed) == {"RAY_AUTH_MODE": "token", "HOME": "/x", "RAY_ADDRESS": "a:1"}


def test_gpus_that_a_user_chose_stay_visible() -> None:
    assert clean_environment({"CUDA_VISIBLE_DEVICES": "1"}, {}) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_messages_stay_until_a_command_says_that_they_were_answered(host: RuntimeHost) -> None:
    for step in range(3):
        host.put({"step": step})
    assert [m["number"] for m in host.receive(0, 0.0)] == [1, 2, 3]
    assert [m["number"] for m in host.receive(2, 0.0)] == [3]
    assert [m["number"] for m in host.receive(0, 0.0)] == [1, 2, 3], "a driver that takes over reads them again"
    host.send({"type": "trial", "id": "t2"}, answered=2)
    assert [m["number"] for m in host.receive(0, 0.0)] == [3]
    host.put({"step": 3})
    assert [m["number"] for m in host.receive(3, 0.0)] == [4]


def test_a_driver_that_takes_over_learns_what_the_process_is_doing_and_the_former_one_cannot_end_it() -> None:
    host = RuntimeHost(f"test-owner-{os.getpid()}", {"reuse": True})
    host.attend("first")
    pid = host.start(["-c", "import time; time.sleep(60)"], {})
    host.send({"type": "trial", "id": "t1"})
    state = host.attend("second")
    assert state == {
        "label": {"reuse": True}, "command": {"type": "trial", "id": "t1"}, "pid": pid, "exit_code": None,
    }  # fmt: skip
    assert host.kill("first") == [] and alive(pid) and not host.owned_by("first")
    assert host.owned_by("second") and host.kill("second") == []
    until(lambda: not alive(pid))


class Left(RuntimeHost):
    """Notes that it was abandoned."""

    left = False

    def abandoned(self) -> None:
        self.left = True


def test_a_host_that_no_driver_calls_ends_its_process_and_one_that_is_called_does_not() -> None:
    attended = Left(f"test-attended-{os.getpid()}", unattended_seconds=1.0)
    forgotten = Left(f"test-forgotten-{os.getpid()}", unattended_seconds=1.0)
    pids = [h.start(["-c", "import time; time.sleep(60)"], {}) for h in (attended, forgotten)]
    end = time.monotonic() + 20.0
    while not forgotten.left and time.monotonic() < end:
        attended.receive(0, 0.1)
    assert forgotten.left and not alive(pids[1])
    assert not attended.left and alive(pids[0])
    assert attended.kill() == []
