"""Readings of GPUs through a fake NVML: values, what is missing, and whose processes run there."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sweep.adapters.gpu_reading import GpuReading, NvmlReader, runtime_of
from tests.adapters.fake_nvml import GIB, FakeNvml, fake_gpu


def read(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, **options: bool) -> tuple[tuple[GpuReading, ...], NvmlReader]:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    reader = NvmlReader(clock=lambda: 1000.0, **options)
    return reader(), reader


def test_everything_a_gpu_reports_is_read_in_our_units(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), reader = read(monkeypatch, FakeNvml(fake_gpu()))
    assert (found.unix_seconds, found.index, found.uuid, found.name) == (1000.0, 0, "GPU-0", "Fake A100")
    assert (found.total_gib, found.free_gib, found.utilisation_pct) == (80.0, 30.0, 87.0)
    assert (found.power_watts, found.power_limit_watts) == (250.0, 500.0)
    assert (found.pcie_received_mb_per_s, found.pcie_sent_mb_per_s) == (22_500.0, 1_200.0)
    assert found.pcie_pct == pytest.approx(71.4, abs=0.1)
    assert reader.problem == ""


def test_what_a_device_does_not_report_is_none_and_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), reader = read(monkeypatch, FakeNvml({"UUID": "MIG-1", "Name": "slice"}))
    assert (found.total_gib, found.utilisation_pct, found.power_watts, found.pcie_pct) == (None, None, None, None)
    assert found.users == () and reader.problem == ""


def test_the_pcie_counters_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), _ = read(monkeypatch, FakeNvml(fake_gpu()), pcie=False)
    assert found.pcie_received_mb_per_s is None and found.free_gib == 30.0


def test_an_unreadable_gpu_is_named_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reader = read(monkeypatch, FakeNvml({"Name": "broken"}, fake_gpu()))
    assert [r.index for r in found] == [1]
    assert reader.problem == "gpu 0: Not Supported"


def test_no_driver_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reader = read(monkeypatch, FakeNvml(no_driver=True))
    assert found == () and reader.problem == "no NVIDIA driver answers: NVML Shared Library Not Found"


def test_a_driver_without_gpus_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reader = read(monkeypatch, FakeNvml())
    assert found == () and reader.problem == "the NVIDIA driver sees no GPU"


def test_a_driver_that_dies_later_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(fake_gpu())
    _, reader = read(monkeypatch, nvml)
    nvml.dead = True
    assert reader() == () and "stopped answering" in reader.problem


def test_nvml_is_opened_once_and_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(fake_gpu())
    _, reader = read(monkeypatch, nvml)
    reader()
    reader.close()
    reader.close()
    assert (nvml.opened, nvml.closed) == (1, 1)


def test_processes_carry_the_runtime_that_they_belong_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, "SWEEP_MAILBOX": "sweep-1"}
    )
    try:
        processes = [
            SimpleNamespace(pid=ours.pid, usedGpuMemory=2 * GIB),
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=None),
            SimpleNamespace(pid=2**22 + 1, usedGpuMemory=GIB),
        ]
        (found,), _ = read(monkeypatch, FakeNvml(fake_gpu(ComputeRunningProcesses=processes)))
    finally:
        ours.kill()
        ours.wait()
    assert [(u.used_gib, u.runtime) for u in found.users] == [(2.0, "sweep-1"), (None, ""), (1.0, None)]


def test_a_child_that_lost_its_environment_is_known_by_its_parent() -> None:
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'], env={})"
    started = subprocess.Popen(
        [sys.executable, "-c", parent],
        env={**os.environ, "SWEEP_MAILBOX": "sweep-2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert started.stdout is not None
    started.stdout.readline()
    (child,) = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == started.pid]
    assert runtime_of(child) == "sweep-2"
    started.communicate(b"\n")


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return -1
