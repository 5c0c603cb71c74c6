"""Recorded GPU traces as `GpuSample`s: `nvidia-smi dmon` tables, `nvidia-smi --query-gpu` CSV, our own JSON lines.

What a table does not have stays None: dmon's default utilisation columns hold no PCIe traffic, and traffic without
a known link is no percentage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from sweep.errors import ConfigError
from sweep.health.hardware import GpuSample
from sweep.health.pcie import Link, busy_pct

INTERVAL_SECONDS = 2.0
"""Between samples of a table without times. Source: S0 section 1.2."""

MIB_PER_GIB = 1024.0

QUERY_COLUMNS = {"utilization.gpu": "utilisation", "memory.total": "total", "memory.free": "free", "index": "gpu"}
"""Headings of nvidia-smi's CSV that are read, without their units."""


def read_trace(
    text: str, links: Mapping[int, Link] | None = None, interval_seconds: float = INTERVAL_SECONDS
) -> tuple[GpuSample, ...]:
    """The samples of a recorded trace in any of the three forms.

    Raises:
        ConfigError: the text is in none of them.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if any(line.startswith("#") and "gpu" in line for line in lines):
        return tuple(_dmon(lines, links or {}, interval_seconds))
    if lines and lines[0].lstrip().startswith("{"):
        return tuple(_json_lines(lines))
    if lines and "utilization.gpu" in lines[0]:
        return tuple(_query_csv(lines, interval_seconds))
    raise ConfigError("not a GPU trace: wanted nvidia-smi dmon, nvidia-smi --query-gpu CSV, or JSON lines of samples")


def _dmon(lines: Iterable[str], links: Mapping[int, Link], interval_seconds: float) -> Iterator[GpuSample]:
    """Rows under the latest heading; the time goes on whenever the first GPU comes round again."""
    columns: list[str] = []
    round_number, seen = 0, set[int]()
    for line in lines:
        cells = line.lstrip("#").split()
        if line.startswith("#"):
            columns = cells if "gpu" in cells else columns
            continue
        values = dict(zip(columns, cells, strict=False))
        gpu = _number(values.get("gpu", ""))
        if gpu is None:
            continue
        if int(gpu) in seen:
            round_number, seen = round_number + 1, set()
        seen.add(int(gpu))
        yield _dmon_sample(values, int(gpu), round_number * interval_seconds, links.get(int(gpu), Link()))


def _dmon_sample(values: Mapping[str, str], gpu: int, seconds: float, link: Link) -> GpuSample:
    received, sent = _number(values.get("rxpci", "")), _number(values.get("txpci", ""))
    traffic = None if received is None or sent is None else busy_pct(received, sent, link)
    return GpuSample(seconds, gpu, utilisation_pct=_number(values.get("sm", "")), pcie_pct=traffic)


def _query_csv(lines: Sequence[str], interval_seconds: float) -> Iterator[GpuSample]:
    """Rows of one GPU unless an index column tells several apart."""
    heading = [cell.strip().split(" ")[0] for cell in lines[0].split(",")]
    counts: dict[int, int] = {}
    for line in lines[1:]:
        cells = [cell.strip().split(" ")[0] for cell in line.split(",")]
        values = {QUERY_COLUMNS[h]: _number(c) for h, c in zip(heading, cells, strict=False) if h in QUERY_COLUMNS}
        gpu = int(values.get("gpu") or 0)
        place = counts[gpu] = counts.get(gpu, -1) + 1
        total, free = values.get("total"), values.get("free")
        yield GpuSample(
            place * interval_seconds,
            gpu,
            utilisation_pct=values.get("utilisation"),
            total_gib=None if total is None else total / MIB_PER_GIB,
            free_gib=None if free is None else free / MIB_PER_GIB,
        )


def _json_lines(lines: Iterable[str]) -> Iterator[GpuSample]:
    known = {f.name for f in fields(GpuSample)}
    for line in lines:
        try:
            content = json.loads(line)
            yield GpuSample(**{k: v for k, v in content.items() if k in known})
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a GPU sample: {line[:80]}") from error


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
