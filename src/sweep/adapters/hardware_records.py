"""A reading of a trial's GPU as others want it: `serves`, `record` for the trace, `system_metrics` for MLflow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sweep.adapters.gpu_reading import GpuReading
from sweep.health.hardware import GpuSample

IN_USE_GIB = 1.0
"""Memory in use above which somebody works on a GPU whose processes cannot be seen; a bare driver holds less. Ours."""

MB_PER_GIB = 2**30 / 1e6
"""MLflow's megabytes are a million bytes."""


def serves(reading: GpuReading, runtime: str) -> bool:
    """Whether the GPU works for this runtime, or for any of ours if it has no name.

    Where no process of the GPU can be seen, it counts if its memory is in use: better one GPU too many than none.
    """
    names = {user.runtime for user in reading.users if user.runtime is not None}
    if names:
        return runtime in names if runtime else names != {""}
    used_gib = (reading.total_gib or 0.0) - (reading.free_gib or 0.0)
    return bool(reading.users) or used_gib > IN_USE_GIB


def record(sample: GpuSample, node: str, reading: GpuReading) -> dict[str, object]:
    """One line of the trace, plain JSON types: the sample itself, and what the rules do not look at beside it."""
    return {
        "version": 1,
        **asdict(sample),
        "node": node,
        "index": reading.index,
        "uuid": reading.uuid,
        "name": reading.name,
        "unix_seconds": reading.unix_seconds,
        "power_watts": reading.power_watts,
        "pcie_received_mb_per_s": reading.pcie_received_mb_per_s,
        "pcie_sent_mb_per_s": reading.pcie_sent_mb_per_s,
        "link": {name: value for name, value in asdict(reading.link).items() if value is not None},
        "processes": [asdict(user) for user in reading.users],
    }


def system_metrics(gpu: int, reading: GpuReading) -> dict[str, float]:
    """Under the names of MLflow's own GPU monitor, then ours in its manner; what was not reported is left out.

    Source: mlflow 3.17 system_metrics/metrics/gpu_monitor.py, prefixed as system_metrics_monitor.py does.
    """
    total, free = reading.total_gib, reading.free_gib
    used = None if total is None or free is None else total - free
    watts, limit = reading.power_watts, reading.power_limit_watts
    found: Mapping[str, float | None] = {
        "memory_usage_percentage": None if used is None or not total else 100 * used / total,
        "memory_usage_megabytes": None if used is None else used * MB_PER_GIB,
        "utilization_percentage": reading.utilisation_pct,
        "power_usage_watts": watts,
        "power_usage_percentage": None if watts is None or not limit else 100 * watts / limit,
        "memory_free_megabytes": None if free is None else free * MB_PER_GIB,
        "pcie_received_megabytes_per_second": reading.pcie_received_mb_per_s,
        "pcie_sent_megabytes_per_second": reading.pcie_sent_mb_per_s,
        "pcie_usage_percentage": reading.pcie_pct,
        "processes": float(len(reading.users)),
    }
    return {f"system/gpu_{gpu}_{name}": value for name, value in found.items() if value is not None}
