"""Numbers that follow from a failure's own numbers, and what they change: `refine`.

One small function for each failure whose message is worth arithmetic. Sizes are GiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sweep.core.failure import FailureClass, Retry

NEIGHBOUR_SHARE = 0.05
"""Share of a card that must be missing before another process is to blame rather than the driver's own overhead.

Source: ours, between 29 % (vllm-project/vllm#20305) and 0.3 % (a context that was not counted).
"""

UNITS_GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
SIZE = re.compile(r"^([\d.]+) ([KMGT])iB$")

LATE_STEP = 10
"""Steps after which an out-of-memory error is called late: the sizes had fitted until then. Ours."""


@dataclass(frozen=True, slots=True)
class Refined:
    """What the arithmetic adds; a field that is None leaves the catalogue's answer as it is."""

    computed: Mapping[str, object] = field(default_factory=dict)
    failure_class: FailureClass | None = None
    retry: Retry | None = None
    fix: tuple[str, ...] | None = None
    hints: tuple[str, ...] = ()
    moves: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known beside the log; None or empty is unknown. `checkpoints` are names such as `global_step_50`."""

    granted_cpus: int | None = None
    host_cpus: int | None = None
    ray_version: str | None = None
    checkpoints: tuple[str, ...] = ()
    total_steps: int | None = None
    last_step: int | None = None
    exit_code: int | None = None
    silent_seconds: float | None = None


def refine(code: str, computed: Mapping[str, object], last_step: int, evidence: Evidence) -> Refined:
    """The refinement of a failure by its numbers; an empty one for most."""
    rule = RULES.get(code)
    return rule(computed, last_step, evidence) if rule else Refined()


def _occupied(computed: Mapping[str, object], last_step: int, evidence: Evidence) -> Refined:
    """By how much memory was short decides: a neighbour, or a share that ignores the driver's overhead."""
    free, total, wanted = (_gib(computed, name) for name in ("free_gib", "total_gib", "wanted_gib"))
    share = _gib(computed, "wanted_utilization")
    if wanted is None and share is not None and total is not None:
        wanted = share * total
    if free is None or total is None or wanted is None or total <= 0:
        return Refined(fix=("see which process holds the GPU's memory, and compare the rollout's share with the rest",))
    shortfall = wanted - free
    most = math.floor(free / total * 100) / 100
    numbers = {"shortfall_gib": round(shortfall, 2), "shortfall_share": round(shortfall / total, 4)}
    if shortfall / total >= NEIGHBOUR_SHARE:
        return Refined(numbers | {"max_utilization": most})
    return Refined(
        numbers | {"max_utilization": most},
        FailureClass.INFEASIBLE_CONFIG,
        Retry.NEW_CONFIG,
        fix=(
            f"lower gpu_memory_utilization to at most {most:g}: only {shortfall:.2f} GiB were missing, which the "
            "driver's own context takes; no other process is to blame",
        ),
        moves={"actor_rollout_ref.rollout.gpu_memory_utilization": f"set {most:g}"},
    )


def _cuda_oom(computed: Mapping[str, object], last_step: int, evidence: Evidence) -> Refined:
    """Sizes in GiB, whether the memory was there but scattered, and whether it came late."""
    sizes = {
        f"{name}_gib": size
        for name in ("wanted", "free", "allocated", "unallocated", "total")
        if (size := _size_gib(computed.get(name))) is not None
    }
    hints: tuple[str, ...] = ()
    numbers: dict[str, object] = {name: round(size, 2) for name, size in sizes.items()}
    if {"wanted_gib", "free_gib", "unallocated_gib"} <= sizes.keys():
        reachable = sizes["free_gib"] + sizes["unallocated_gib"]
        numbers["reachable_gib"] = round(reachable, 2)
        numbers["fragmented"] = reachable > sizes["wanted_gib"]
        if numbers["fragmented"]:
            hints += (
                f"{reachable:.1f} GiB were free or reserved without use, {sizes['wanted_gib']:.1f} GiB were wanted: "
                "memory is fragmented, and batches of even length help (dynamic batches, sorted lengths)",
            )
    if last_step >= LATE_STEP:
        numbers["late"] = True
        hints += (
            f"{last_step} steps went well before: compare actor/perf/max_memory_reserved_gb of the first and last of "
            "them; if it crept up, keep free_cache_engine on, and see whether responses grew longer",
        )
    return Refined(numbers, hints=hints)


def _host_oom(computed: Mapping[str, object], last_step: int, evidence: Evidence) -> Refined:
    """How full the node was, against Ray's limit, and who held most of it."""
    used, limit = _gib(computed, "used_share"), _gib(computed, "threshold")
    if used is None:
        return Refined()
    told = f"the node was {used:.1%} full" + (f", Ray's limit is {limit:.0%}" if limit is not None else "")
    consumers = computed.get("consumers")
    if isinstance(consumers, list) and consumers:
        told += f"; most was held by {', '.join(str(entry) for entry in consumers[:4])}"
    percent = {"used_percent": round(100 * used, 1)} | ({} if limit is None else {"limit_percent": round(100 * limit)})
    return Refined(percent, hints=(told,))


def _raylet(computed: Mapping[str, object], last_step: int, evidence: Evidence) -> Refined:
    """The likely cause first: a job that was granted fewer CPUs than the host has."""
    versions = "check that Ray and protobuf versions fit each other" + (
        f" (Ray {evidence.ray_version} here)" if evidence.ray_version else ""
    )
    stale = "a stale session folder of Ray may go, only if no live Ray session of any user uses it"
    granted, host = evidence.granted_cpus, evidence.host_cpus
    if granted is None or host is None or granted >= host:
        return Refined()
    cpus = (
        f"set ray_kwargs.ray_init.num_cpus={granted}: the job was granted {granted} of {host} CPUs, "
        "and Ray starts workers for all"
    )
    return Refined(
        {"granted_cpus": granted, "host_cpus": host},
        fix=(cpus, versions, stale),
        moves={"ray_kwargs.ray_init.num_cpus": f"set {granted}"},
    )


RULES: Mapping[str, Callable[[Mapping[str, object], int, Evidence], Refined]] = {
    "GPU_MEMORY_OCCUPIED": _occupied,
    "CUDA_OOM": _cuda_oom,
    "HOST_OOM": _host_oom,
    "RAYLET_REGISTER": _raylet,
}


def _gib(computed: Mapping[str, object], name: str) -> float | None:
    value = computed.get(name)
    return float(value) if isinstance(value, int | float) else None


def _size_gib(text: object) -> float | None:
    found = SIZE.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        return float(found[1]) * UNITS_GIB[found[2].upper()]
    except ValueError:
        return None
