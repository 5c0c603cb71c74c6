"""The launcher on a real local Ray cluster: what it starts, what comes home, and that everything is given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from sweep.adapters.ray_host import MAILBOX_VARIABLE
from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
from sweep.errors import EngineError
from tests.ray_cluster import eventually, everything_is_free, free_gpus

HOLDER = """
import os, time, ray
from ray.util.placement_group import placement_group
ray.init(log_to_driver=False)
ray.get(placement_group([{"CPU": 3, "GPU": 1}]).ready())
@ray.remote
class Worker:
    def pid(self): return os.getpid()
worker = Worker.options(num_gpus=1, runtime_env={"env_vars": {"SWEEP_MAILBOX": os.environ["SWEEP_MAILBOX"]}}).remote()
box = ray.get_actor(os.environ["SWEEP_MAILBOX"], namespace="sweep")
ray.get(box.put.remote({"type": "ready", "worker": ray.get(worker.pid.remote()), "pid": os.getpid()}))
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def opened(launcher: RayLauncher) -> None:
    launcher.open()


def _quotient(dividend: int, divisor: int) -> int:
    return dividend // divisor


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_a_local_cluster_claims_what_it_was_told_to(launcher: RayLauncher) -> None:
    (found,) = launcher.nodes()
    assert (found["CPU"], found["GPU"]) == (32, 2)


def test_gpus_that_do_not_come_free_are_not_waited_for_for_ever(
    launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.adapters.ray_launcher.LAUNCH_SECONDS", 3.0)
    with pytest.raises(EngineError, match=r"no node .* runs test-greedy \(asked for \{'GPU': 3\}\)"):
        launcher.launch("test-greedy", ["-c", "pass"], {}, gpus=3)
    eventually(everything_is_free)


def test_a_process_reaches_its_mailbox_and_console_and_messages_come_home(launcher: RayLauncher) -> None:
    host = launcher.launch("test-talk", ["-c", HOLDER], {})
    (ready,) = host.receive(0, 200.0)
    assert ready["type"] == "ready" and alive(ready["worker"])
    host.close()


def test_closing_a_host_ends_its_processes_and_frees_what_they_held(launcher: RayLauncher) -> None:
    eventually(everything_is_free)
    host = launcher.launch("test-close", ["-c", HOLDER], {})
    (ready,) = host.receive(0, 200.0)
    assert free_gpus() == 0
    host.close()
    assert not alive(ready["pid"]) and not alive(ready["worker"])
    eventually(everything_is_free, seconds=5.0)
    host.close()


def test_a_process_killed_from_outside_is_gone_with_its_signal_and_frees_what_it_held(launcher: RayLauncher) -> None:
    eventually(everything_is_free)
    host = launcher.launch("test-kill", ["-c", HOLDER], {})
    (ready,) = host.receive(0, 200.0)
    os.kill(ready["pid"], signal.SIGKILL)
    (gone,) = host.receive(ready["number"], 30.0)
    assert (gone["type"], gone["exit_code"]) == ("gone", -9)
    host.close()
    assert not alive(ready["worker"])
    eventually(everything_is_free, seconds=5.0)


def test_a_campaign_that_is_killed_takes_its_cluster_its_processes_and_their_workers_along() -> None:
    script = (
        "import sys, time\nfrom sweep.adapters.ray_launcher import ClusterSettings, RayLauncher\n"
        "host = RayLauncher(ClusterSettings.without_gpus(2)).launch('test-orphan', ['-c', sys.argv[1]], {})\n"
        "(ready,) = host.receive(0, 200.0)\nprint(ready['pid'], ready['worker'], flush=True)\ntime.sleep(600)\n"
    )
    campaign = subprocess.Popen([sys.executable, "-c", script, HOLDER], stdout=subprocess.PIPE, text=True)
    assert campaign.stdout is not None
    driver, worker = map(int, campaign.stdout.readline().split())
    assert alive(driver) and alive(worker)
    campaign.kill()
    campaign.wait()
    eventually(lambda: not alive(driver) and not alive(worker), seconds=30.0)


def test_a_worker_that_ray_starts_while_its_process_is_being_ended_is_ended_too(
    launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[subprocess.Popen[bytes]] = []

    def freed_meanwhile(*driver: Any) -> bool:
        mine = {**os.environ, MAILBOX_VARIABLE: "test-late"}
        late.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=mine))
        return True

    monkeypatch.setattr("sweep.adapters.ray_job._freed", freed_meanwhile)
    host = launcher.launch("test-late", ["-c", "import time; time.sleep(600)"], {})
    host.close()
    assert late[0].wait(5.0) == -signal.SIGKILL


def test_two_processes_do_not_end_together(launcher: RayLauncher) -> None:
    one = launcher.launch("test-one", ["-c", "import time; time.sleep(600)"], {})
    two = launcher.launch("test-two", ["-c", "import time; print('two', flush=True); time.sleep(600)"], {})
    one.close()
    assert two.receive(0, 0.5) == []
    two.close()


def test_a_host_whose_node_is_lost_reports_that_its_process_is_gone(launcher: RayLauncher) -> None:
    import ray

    host = launcher.launch("test-lost", ["-c", "import time; time.sleep(600)"], {})
    ray.kill(host._actor)
    (gone,) = host.receive(4, 5.0)
    assert gone == {"type": "gone", "exit_code": None, "reason": "its node is lost", "number": 5}
    assert host.read_log(0) == b""
    host.send({"type": "end"})
    host.close()


def test_a_host_that_no_node_can_run_is_an_engine_error(monkeypatch: pytest.MonkeyPatch, launcher: RayLauncher) -> None:
    picky = RayLauncher(ClusterSettings(host_resources={"moon": 1}))
    picky._address = launcher._address
    monkeypatch.setattr("sweep.adapters.ray_launcher.LAUNCH_SECONDS", 2.0)
    with pytest.raises(EngineError, match="moon"):
        picky.launch("test-picky", ["-c", "pass"], {})


def test_a_function_runs_on_a_node_and_its_failure_is_an_engine_error(launcher: RayLauncher) -> None:
    assert launcher.call(_quotient, 64, 2) == 32
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        launcher.call(_quotient, 1, 0)


def test_a_function_that_wants_more_gpus_than_come_free_is_refused(
    monkeypatch: pytest.MonkeyPatch, launcher: RayLauncher
) -> None:
    monkeypatch.setattr("sweep.adapters.ray_launcher.FREE_SECONDS", 1.0)
    with pytest.raises(EngineError, match="3 GPUs were asked for"):
        launcher.call(_quotient, 64, 2, gpus=3)


def test_an_address_where_nobody_answers_is_a_configuration_error_that_says_what_would_work() -> None:
    script = (
        "from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher\n"
        "from sweep.errors import ConfigError\n"
        "try: RayLauncher(ClusterSettings(address='127.0.0.1:1')).open()\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "no Ray cluster answers at cluster.address='127.0.0.1:1'" in done.stdout, done.stderr
    assert "ray start --head" in done.stdout


def test_closing_twice_or_unopened_does_nothing() -> None:
    RayLauncher(ClusterSettings()).close()


def test_on_a_given_cluster_a_process_outlives_its_driver_and_the_next_one_has_it(launcher: RayLauncher) -> None:
    eventually(everything_is_free)
    script = (
        "import sys, time\nfrom sweep.adapters.ray_launcher import ClusterSettings, RayLauncher\n"
        "driver = RayLauncher(ClusterSettings(address=sys.argv[1]))\n"
        "host = driver.launch('sweep-c1-t1', ['-c', sys.argv[2]], {}, label={'reuse': True})\n"
        "host.send({'type': 'trial', 'id': 't1'})\n"
        "print(host.receive(0, 200.0)[0]['pid'], flush=True)\ntime.sleep(600)\n"
    )
    lost = subprocess.Popen(
        [sys.executable, "-c", script, launcher._address, HOLDER], stdout=subprocess.PIPE, text=True
    )
    assert lost.stdout is not None
    pid = int(lost.stdout.readline())
    lost.kill()
    lost.wait()
    lost.stdout.close()
    second = RayLauncher(ClusterSettings(address=launcher._address))
    second._address = launcher._address
    assert second.left("sweep-c2-") == []
    (host,) = second.left("sweep-c1-")
    assert (host.label, host.command) == ({"reuse": True}, {"type": "trial", "id": "t1"})
    (ready,) = host.receive(0, 10.0)
    assert ready["pid"] == pid and alive(pid) and free_gpus() == 0
    host.close()
    assert not alive(pid)
    eventually(everything_is_free, seconds=10.0)
    assert second.left("sweep-c1-") == []
