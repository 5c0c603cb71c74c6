"""Samplers on the nodes of a real local Ray cluster, without a GPU and with one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters import nvml_probe
from sweep.adapters.gpu_nodes import on_cluster
from sweep.adapters.hardware_watch import HardwareWatch
from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
from tests.engines.vllm.test_own_process import eventually
from tests.ray_cluster import free_resources

HELD_GIB = 2.0


@pytest.fixture(autouse=True)
def opened(launcher: RayLauncher) -> None:
    launcher.open()


@pytest.fixture
def cluster_with_gpus(launcher: RayLauncher) -> Iterator[None]:
    """In place of the one that only counts some."""
    launcher.close()
    found = RayLauncher(ClusterSettings(object_store_gib=0.1))
    found.open()
    yield
    found.close()


def test_each_node_with_gpus_has_a_sampler_that_takes_no_resources() -> None:
    before = free_resources()
    samplers = on_cluster(0.05)
    assert len(samplers) == 1
    (sampler,) = samplers.values()
    assert sampler.problem() == nvml_probe.read().problem
    assert free_resources() == before
    sampler.close()
    assert "ended" in sampler.problem() and list(sampler.take()) == []
    sampler.close()


def test_a_sampler_whose_node_is_lost_says_so_and_is_not_asked_again() -> None:
    import ray

    (sampler,) = on_cluster(60.0).values()
    assert sampler.problem() == nvml_probe.read().problem
    ray.kill(sampler._actor)
    eventually(lambda: "does not answer" in sampler.problem() or (sampler.take() or None))
    began = time.monotonic()
    assert list(sampler.take()) == [] and time.monotonic() - began < 30  # of the 60 s that an answer may take


def test_without_a_gpu_the_watch_says_so_and_records_nothing(tmp_path: Path) -> None:
    if nvml_probe.read().devices:
        pytest.skip("this machine has a GPU")
    watch = HardwareWatch(on_cluster(0.05))
    watch.follow("t", tmp_path, 0.0)
    watch.look()
    assert watch.leave("t") == ()
    (said,) = watch.absent()
    assert "are not watched: no NVIDIA driver answers" in said
    watch.close()


@pytest.mark.gpu
@pytest.mark.skipif(not nvml_probe.read().devices, reason=f"no GPU: {nvml_probe.read().problem}")
def test_a_gpu_is_watched_where_its_ray_worker_runs(cluster_with_gpus: None, tmp_path: Path) -> None:
    import ray

    def hold(seconds: float) -> None:
        import torch

        block = torch.ones(int(HELD_GIB * 2**30 / 4), device="cuda")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            block.mul_(1.0)
        torch.cuda.synchronize()

    watch = HardwareWatch(on_cluster(0.25))
    watch.follow("ours", tmp_path / "ours", time.time(), lambda: "sweep-gpu-test")
    watch.follow("other", tmp_path / "other", time.time(), lambda: "sweep-other")
    environment = {"env_vars": {"SWEEP_MAILBOX": "sweep-gpu-test"}}
    ray.get(ray.remote(hold).options(num_gpus=1, runtime_env=environment).remote(8.0), timeout=120)
    ours, other = watch.leave("ours"), watch.leave("other")
    watch.close()
    assert len(ours) >= 10 and max(s.utilisation_pct or 0 for s in ours) > 50
    assert max(s.used_share * s.total_gib for s in ours if s.used_share and s.total_gib) > HELD_GIB
    assert len(other) < len(ours)
