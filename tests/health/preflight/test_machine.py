"""CPUs, socket paths, host memory."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity
from sweep.health.preflight.machine import RAY_TMP_BYTES, needed_cpus

from .sound import SOUND, codes, only


@pytest.mark.parametrize(
    ("changes", "need"),
    [
        ({}, 33),
        ({keys.GPUS_PER_NODE: 1}, 12),
        ({keys.USE_V1: False}, 24),
        ({keys.QUEUE_UNITS: 1}, 26),
        ({keys.QUEUE_BACKEND: "MooncakeStore"}, 24),
        ({keys.GPUS_PER_NODE: 1, keys.QUEUE_UNITS: 1}, 10),
        ({keys.GPUS_PER_NODE: 1, keys.QUEUE_UNITS: 1, keys.DEVICE: "cpu"}, 5),
    ],
)
def test_a_trial_reserves_three_cpus_a_gpu_and_the_queues_own_and_gpu_hosts_have_a_floor(
    changes: dict[str, object], need: int
) -> None:
    assert needed_cpus({**SOUND, **changes}) == need


@pytest.mark.parametrize(("cpus", "named"), [(32, True), (33, False), (None, False)])
def test_too_few_logical_cpus_are_an_error_because_verl_hangs(cpus: int | None, named: bool) -> None:
    assert ("CPUS_SHORT" in codes({}, Facts(logical_cpus=cpus))) == named


def test_the_cpus_that_ray_is_given_count_before_the_machines() -> None:
    assert "CPUS_SHORT" in codes({keys.RAY_CPUS: 8}, Facts(logical_cpus=64))
    assert "CPUS_SHORT" not in codes({keys.RAY_CPUS: 64}, Facts(logical_cpus=8))


def test_another_clusters_cpus_are_unknown() -> None:
    assert "CPUS_SHORT" not in codes({keys.RAY_ADDRESS: "10.0.0.1:6379"}, Facts(logical_cpus=8))
    assert "CPUS_SHORT" in codes({keys.RAY_ADDRESS: "local"}, Facts(logical_cpus=8))


def test_fewer_storage_units_are_proposed_only_where_they_suffice() -> None:
    eleven = only("CPUS_SHORT", {keys.GPUS_PER_NODE: 1}, Facts(logical_cpus=11))
    assert eleven.nearest == (f"{keys.QUEUE_UNITS}=7", f"{keys.RAY_CPUS}=12")
    for too_few in (4, 9):
        found = only("CPUS_SHORT", {keys.GPUS_PER_NODE: 1}, Facts(logical_cpus=too_few))
        assert found.nearest == (f"{keys.RAY_CPUS}=12",)


def test_the_floor_of_a_gpu_host_is_told_from_what_a_trial_reserves() -> None:
    found = only("CPUS_SHORT", {keys.GPUS_PER_NODE: 1, keys.QUEUE_UNITS: 1}, Facts(logical_cpus=8))
    assert "a trial reserves 5, but 10 are the floor of a GPU host" in found.what
    assert found.nearest == (f"{keys.RAY_CPUS}=10",)


def test_rays_folder_may_have_43_bytes() -> None:
    assert RAY_TMP_BYTES == 43
    fits, too_long = "/" + "a" * 42, "/" + "a" * 43
    assert codes({}, Facts(ray_temp_dir=fits)) == []
    assert only("RAY_TMP_TOO_LONG", {}, Facts(ray_temp_dir=too_long)).computed == {"length": 44, "limit": 43}


def test_bytes_count_not_letters() -> None:
    assert "RAY_TMP_TOO_LONG" in codes({}, Facts(ray_temp_dir="/" + "调" * 15))


def test_the_configured_folder_counts_before_the_environments() -> None:
    assert "RAY_TMP_TOO_LONG" in codes({keys.RAY_TMP: "/x" * 40}, Facts(ray_temp_dir="/tmp/ray"))


@pytest.mark.parametrize(("have", "named"), [(15.9, True), (16.0, False)])
def test_idle_workers_take_host_memory(have: float, named: bool) -> None:
    assert ("HOST_MEMORY_SHORT" in codes({}, Facts(host_memory_gib=have))) == named


def test_offloaded_state_takes_host_memory() -> None:
    facts = Facts(host_memory_gib=100, model=ModelFacts(parameters=8e9))
    assert "HOST_MEMORY_SHORT" not in codes({}, facts)
    finding = only("HOST_MEMORY_SHORT", {keys.ACTOR_PARAM_OFFLOAD: True, keys.ACTOR_OPTIMIZER_OFFLOAD: True}, facts)
    assert finding.severity is Severity.WARN
