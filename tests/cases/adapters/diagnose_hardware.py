"""Answers for `diagnose.hardware`: samples and recorded tables through the hardware patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep.core import verl_keys as keys
from sweep.health.evidence import RunFacts
from sweep.health.finding import Finding, Severity
from sweep.health.gpu_trace import read_trace
from sweep.health.hardware import GpuSample, HardwareFacts, hardware
from sweep.health.pcie import Link

from .diagnose_metrics import describe_findings

COLUMNS = {
    "utilisation_pct": ("util_pct", "gpu_util", "util", "utilisation_pct", "utilization_gpu", "gpu_util_pct"),
    "free_gib": ("free_gb", "free_gib", "memory_free_gb"),
    "total_gib": ("total_gb", "total_gib", "memory_total_gb", "gpu_total_gb"),
    "pcie_pct": ("pcie_pct", "pcie"),
    "phase": ("phase",),
    "gpu": ("gpu",),
}
"""Field of a sample to the names under which a case may give its values."""


def samples(given: Mapping[str, Any]) -> dict[str, Any]:
    """The patterns in samples given as one list a quantity, or as one dict a sample."""
    columns = _columns(given)
    found = {field: _list(columns, names) for field, names in COLUMNS.items()}
    percent = _list(columns, ("mem_used_pct", "memory_used_pct", "used_pct", "memory_pct"))
    used = _list(columns, ("used_gb", "mem_used_gb", "memory_used_gb", "used_gib"))
    count = max(len(values) for values in (*found.values(), percent, used))
    interval = float(given.get("interval_s", 2.0))
    made = []
    for place in range(count):
        values = {f: value for f, v in found.items() if (value := _at(v, place)) is not None}
        if _at(percent, place) is not None:
            values |= {"total_gib": 100.0, "free_gib": 100.0 - float(_at(percent, place))}
        elif _at(used, place) is not None and "total_gib" in values:
            values["free_gib"] = float(values["total_gib"]) - float(_at(used, place))
        made.append(GpuSample(seconds=place * interval, **{"gpu": 0, **values}))
    return _describe(hardware(made, _facts(given)))


def _columns(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input with rows of samples, if that is how it gives them, turned into lists."""
    rows = given.get("samples") or given.get("rows")
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], Mapping):
        return given
    names = dict.fromkeys(name for row in rows for name in row)
    return {**given, **{name: [row.get(name) for row in rows] for name in names}}


def dmon(given: Mapping[str, Any]) -> dict[str, Any]:
    """PCIe shares and verdicts by GPU of a recorded table."""
    stated = given.get("link")
    link = _link(stated) if stated else Link()
    trace = read_trace(given["text"], {gpu: link for gpu in range(64)}, float(given.get("interval_s", 2.0)))
    found = hardware(trace, _facts(given))
    highest: dict[str, Any] = {}
    for sample in trace:
        key = str(sample.gpu)
        share = "unknown" if sample.pcie_pct is None else round(sample.pcie_pct)
        highest[key] = share if isinstance(share, str) else max(share, highest.get(key, 0))
    answer = _describe(found) | {"pcie_pct": highest, "link_degraded": link.degraded}
    for gpu in highest:
        codes = [f.code.name for f in found if f.metric == f"gpu/{gpu}"]
        answer[f"verdict_gpu{gpu}"] = codes[0] if codes else "OK"
    return answer


def _describe(found: tuple[Finding, ...]) -> dict[str, Any]:
    leading = next((f for f in found if f.severity is not Severity.INFO), None)
    return describe_findings(found, leading)


def _facts(given: Mapping[str, Any]) -> HardwareFacts:
    run = RunFacts(config=given.get("config") or {})
    frees = run.flag(keys.ROLLOUT_FREE_CACHE)
    seconds, gen = given.get("step_s"), given.get("gen_s")
    share = given.get("gen_share", gen / seconds if seconds and gen else None)
    return HardwareFacts(free_cache_engine=frees is not False, gen_share=share)


def _link(stated: Mapping[str, Any]) -> Link:
    return Link(
        generation=stated.get("gen"),
        width=stated.get("width"),
        max_generation=stated.get("max_gen"),
        max_width=stated.get("max_width"),
        capacity_mb_per_s=stated.get("max_mb_s"),
    )


def _list(given: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    value = next((given[name] for name in names if name in given), [])
    return value if isinstance(value, list) else [value]


def _at(values: Sequence[Any], place: int) -> Any:
    """The value at a place; one value alone holds for all."""
    if not values:
        return None
    return values[place] if place < len(values) else values[-1] if len(values) == 1 else None


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"gpu_samples": samples, "dmon_text": dmon}
