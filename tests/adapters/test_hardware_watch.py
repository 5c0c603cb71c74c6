"""The watch over scripted samplers: whose GPUs they are, what is recorded, and that traces replay."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.adapters.gpu_reading import GpuReading, GpuUser
from sweep.adapters.hardware_records import serves, system_metrics
from sweep.adapters.hardware_watch import TRACE_FILE, HardwareWatch
from sweep.health.code import Code
from sweep.health.gpu_trace import read_trace
from sweep.health.hardware import HardwareFacts, hardware
from sweep.health.pcie import Link
from tests.engines.vllm.test_own_process import eventually

OURS = GpuUser(1, 20.0, "sweep-a")
READING = GpuReading(100.0, 0, "GPU-0", "Fake", 80.0, 30.0, 90.0, 250.0, 500.0, 22_500.0, 1_200.0, Link(4, 16), (OURS,))


class ScriptedSampler:
    """A fake sampler: gives one batch of readings a call."""

    def __init__(self, *batches: Sequence[GpuReading], problem: str = "") -> None:
        self.batches = list(batches)
        self.said = problem
        self.closed = 0

    def take(self) -> Sequence[GpuReading]:
        return self.batches.pop(0) if self.batches else ()

    def problem(self) -> str:
        return self.said

    def close(self) -> None:
        self.closed += 1


def reading(seconds: float, index: int = 0, *users: GpuUser, **changes: float) -> GpuReading:
    return replace(READING, unix_seconds=seconds, index=index, users=users or (OURS,), **changes)  # type: ignore[arg-type]


def test_a_trials_readings_are_timed_from_its_start_and_those_before_it_are_left_out(tmp_path: Path) -> None:
    watch = HardwareWatch({"n": ScriptedSampler([reading(99.0), reading(100.0)], [reading(102.0)])})
    watch.follow("t", tmp_path, 100.0)
    watch.look()
    assert [s.seconds for s in watch.leave("t")] == [0.0, 2.0]
    assert watch.leave("t") == ()
    watch.close()


def test_a_recorded_trace_replays_as_the_same_samples_and_findings(tmp_path: Path) -> None:
    batches = [[reading(100.0 + 2 * i, 1, utilisation_pct=10.0, free_gib=4.0)] for i in range(6)]
    watch = HardwareWatch({"n": ScriptedSampler(*batches)})
    watch.follow("t", tmp_path / "t", 100.0)
    for _ in batches:
        watch.look()
    live = watch.leave("t")
    replayed = read_trace((tmp_path / "t" / TRACE_FILE).read_text())
    assert replayed == live and len(live) == 6
    (finding,) = hardware(replayed, HardwareFacts())
    assert (finding.code, finding.metric) == (Code.INPUT_OR_ROLLOUT_BOUND, "gpu/1")


def test_a_line_of_the_trace_holds_power_traffic_link_and_processes(tmp_path: Path) -> None:
    watch = HardwareWatch({"10.0.0.1": ScriptedSampler([READING])})
    watch.follow("t", tmp_path, 0.0)
    watch.leave("t")
    line = json.loads((tmp_path / TRACE_FILE).read_text())
    assert (line["version"], line["node"], line["uuid"], line["power_watts"]) == (1, "10.0.0.1", "GPU-0", 250.0)
    assert (line["pcie_received_mb_per_s"], line["link"]) == (22_500.0, {"generation": 4, "width": 16})
    assert line["processes"] == [{"pid": 1, "used_gib": 20.0, "runtime": "sweep-a"}]


def test_trials_side_by_side_get_the_gpus_of_their_own_runtimes(tmp_path: Path) -> None:
    other, stranger = GpuUser(2, 1.0, "sweep-b"), GpuUser(3, 1.0, "")
    batch = [reading(100.0, 0, OURS), reading(100.0, 1, other), reading(100.0, 2, stranger), reading(100.0, 3, other)]
    watch = HardwareWatch({"n": ScriptedSampler(batch)})
    watch.follow("a", tmp_path / "a", 0.0, lambda: "sweep-a")
    watch.follow("b", tmp_path / "b", 0.0, lambda: "sweep-b")
    watch.follow("c", tmp_path / "c", 0.0, lambda: "")  # not started yet
    watch.follow("all", tmp_path / "all", 0.0)
    watch.look()
    found = {name: [s.gpu for s in watch.leave(name)] for name in ("a", "b", "c", "all")}
    assert found == {"a": [0], "b": [1, 3], "c": [], "all": [0, 1, 3]}


def test_gpus_are_numbered_over_nodes(tmp_path: Path) -> None:
    samplers = {
        "one": ScriptedSampler([reading(1.0, 0), reading(1.0, 1)], [reading(3.0, 1)]),
        "two": ScriptedSampler([reading(1.0, 0)], [reading(3.0, 0)]),
    }
    offered: list[tuple[str, int, Mapping[str, float]]] = []
    watch = HardwareWatch(samplers, offer=lambda *news: offered.append(news))
    watch.follow("t", tmp_path, 0.0)
    watch.look()
    assert [s.gpu for s in watch.leave("t")] == [0, 1, 2, 1, 2]
    assert [(trial, ms) for trial, ms, _ in offered][-1] == ("t", 3000)
    assert {name for _, _, metrics in offered for name in metrics if "utilization" in name} == {
        f"system/gpu_{i}_utilization_percentage" for i in range(3)
    }


def test_a_node_without_gpus_is_said_once_and_the_others_are_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = ScriptedSampler(problem="no NVIDIA driver answers: NVML Shared Library Not Found")
    watch = HardwareWatch({"cpu": absent, "gpu": ScriptedSampler([reading(1.0)], [reading(3.0)])})
    watch.follow("t", tmp_path, 0.0)
    with caplog.at_level(logging.WARNING):
        watch.look()
        assert [s.gpu for s in watch.leave("t")] == [0, 0]
    assert [r.message for r in caplog.records] == [
        "GPUs of cpu are not watched: no NVIDIA driver answers: NVML Shared Library Not Found"
    ]
    assert watch.absent() == tuple(r.message for r in caplog.records)


def test_no_node_at_all_is_said(tmp_path: Path) -> None:
    watch = HardwareWatch({})
    watch.follow("t", tmp_path, 0.0)
    assert watch.leave("t") == () and watch.absent() == ("no node of the cluster has GPUs",)


def test_the_thread_fetches_by_itself_and_closing_ends_the_samplers(tmp_path: Path) -> None:
    sampler = ScriptedSampler([reading(1.0)], [reading(2.0)], [reading(3.0)])
    watch = HardwareWatch({"n": sampler}, interval_seconds=0.01)
    watch.follow("t", tmp_path, 0.0)
    watch.start()
    eventually(lambda: len((tmp_path / TRACE_FILE).read_text().splitlines()) == 3)
    watch.close()
    watch.close()
    assert sampler.closed == 1


def test_a_trial_that_starts_again_starts_its_trace_again(tmp_path: Path) -> None:
    watch = HardwareWatch({"n": ScriptedSampler([reading(1.0)], [reading(5.0)])})
    watch.follow("t", tmp_path, 0.0)
    watch.look()
    watch.follow("t", tmp_path, 4.0)
    assert [s.seconds for s in watch.leave("t")] == [1.0]
    assert len((tmp_path / TRACE_FILE).read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("users", "free_gib", "runtime", "expected"),
    [
        ((OURS,), 30.0, "sweep-a", True),
        ((OURS,), 30.0, "sweep-b", False),
        ((OURS,), 30.0, "", True),
        ((GpuUser(3, 1.0, ""),), 30.0, "", False),
        ((GpuUser(3, 1.0, ""), OURS), 30.0, "sweep-a", True),
        ((GpuUser(3, 1.0, None),), 79.9, "sweep-a", True),
        ((), 79.0, "sweep-a", False),
        ((), 78.9, "sweep-a", True),
    ],
    ids=["ours", "another trial's", "any", "a stranger's", "shared", "out of sight", "idle", "used by nobody in sight"],
)
def test_a_gpu_serves_whoever_works_on_it(
    users: tuple[GpuUser, ...], free_gib: float, runtime: str, expected: bool
) -> None:
    assert serves(replace(READING, users=users, free_gib=free_gib), runtime) is expected


def test_system_metrics_bear_mlflows_names_and_units() -> None:
    found = system_metrics(0, READING)
    assert found["system/gpu_0_memory_usage_percentage"] == 62.5
    assert found["system/gpu_0_memory_usage_megabytes"] == pytest.approx(50 * 2**30 / 1e6)
    assert found["system/gpu_0_utilization_percentage"] == 90.0
    assert (found["system/gpu_0_power_usage_watts"], found["system/gpu_0_power_usage_percentage"]) == (250.0, 50.0)
    assert found["system/gpu_0_pcie_usage_percentage"] == pytest.approx(71.4, abs=0.1)
    assert found["system/gpu_0_processes"] == 1.0


def test_metrics_that_mlflow_has_too_are_named_as_its_own_monitor_names_them() -> None:
    import inspect

    from mlflow.system_metrics.metrics import gpu_monitor

    source = inspect.getsource(gpu_monitor)
    theirs = [n for n in system_metrics(0, READING) if f"gpu_{{i}}_{n.removeprefix('system/gpu_0_')}" in source]
    assert len(theirs) == 5


def test_what_was_not_reported_is_no_metric() -> None:
    assert system_metrics(1, GpuReading(1.0, 0)) == {"system/gpu_1_processes": 0.0}
