"""`main`: play everything over the cores, write JSON, tables and figure, print the headline last."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.decisions import stops, verdicts
from benchmarks.decisions.campaigns import METHODS, Campaign, play_one
from benchmarks.decisions.figure import draw
from benchmarks.decisions.summary import headline, summarize, table
from benchmarks.decisions.verdicts import CVS
from benchmarks.decisions.worlds import KINDS

RESULTS = Path(__file__).resolve().parents[1] / "results"
PRODUCT = "staged, as shipped"
FULL = {"verdicts": 2000, "stops": 500, "campaigns": 200}
QUICK = {"verdicts": 300, "stops": 60, "campaigns": 80}
"""Repetitions of a cell; campaigns a method and noise level, spread evenly over the kinds of surface."""

CHUNK = 20


def main() -> None:
    """Play everything, write the results, print the tables and the headline."""
    started = time.monotonic()
    size = QUICK if os.environ.get("QUICK") == "1" else FULL
    path = RESULTS / ("decisions-quick.json" if size is QUICK else "decisions.json")
    only = [m for m in os.environ.get("ONLY", "").split(",") if m]
    workers = int(os.environ.get("WORKERS") or os.cpu_count() or 1)
    (RESULTS / "raw").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_quiet) as pool:
        cells, stopped = _single_decisions(pool, size, RESULTS / "raw" / f"single-{size['verdicts']}.json", bool(only))
        campaigns = _campaigns(pool, size["campaigns"], only)
    summary = summarize(cells, stopped, campaigns)
    summary["run"] = {"seconds": round(time.monotonic() - started), "workers": workers, "repetitions": size}
    path.write_text(json.dumps(summary, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(summary) + "\n")
    draw(summary, path.with_suffix(".png"))
    print(table(summary))
    print(json.dumps(headline(summary, PRODUCT)))


def _single_decisions(
    pool: ProcessPoolExecutor, size: Mapping[str, int], raw: Path, from_last_run: bool
) -> tuple[list[Any], list[Any]]:
    """Cells of verdicts and of early stops, as JSON types; those of the last run if asked."""
    if not from_last_run:
        cells = _gathered(pool, verdicts.verdict_cells, size["verdicts"], verdicts.cell, "verdicts")
        stopped = _gathered(pool, stops.stop_cells, size["stops"], stops.stop_cell, "early stops")
        raw.write_text(json.dumps([[c.to_json() for c in cells], [s.to_json() for s in stopped]]))
    found: tuple[list[Any], list[Any]] = json.loads(raw.read_text())
    return found


def _gathered(
    pool: ProcessPoolExecutor,
    play: Callable[[int, int], list[tuple[Any, list[Any]]]],
    count: int,
    counted: Callable[[Any, list[Any]], Any],
    label: str,
) -> list[Any]:
    """The cells of a part whose repetitions are spread over the workers."""
    found: dict[Any, list[Any]] = defaultdict(list)
    starts = range(0, count, CHUNK)
    jobs = [pool.submit(play, min(CHUNK, count - at), at) for at in starts]
    for job in _shown(jobs, label):
        for key, seen in job.result():
            found[key].extend(seen)
    return [counted(key, seen) for key, seen in found.items()]


def _campaigns(pool: ProcessPoolExecutor, count: int, only: list[str]) -> list[Campaign]:
    """All campaigns; with `only` those of the other methods as the last run of the same size played them."""
    raw = RESULTS / "raw" / f"decisions-campaigns-{count}.jsonl"
    wanted = only or list(METHODS)
    kept = [c for c in _read(raw) if c.method not in wanted and c.method in METHODS] if only else []
    jobs = [
        pool.submit(play_one, method, kind, cv, number)
        for number, kind, cv, method in itertools.product(range(count // len(KINDS)), KINDS, CVS, wanted)
    ]
    played = [job.result() for job in _shown(jobs, "campaigns")]
    raw.write_text("".join(json.dumps(c.to_json()) + "\n" for c in [*kept, *played]))
    return [*kept, *played]


def _read(raw: Path) -> Iterator[Campaign]:
    for line in raw.read_text().splitlines() if raw.exists() else ():
        content = json.loads(line)
        yield Campaign(**{**content, "path": tuple((s, q) for s, q in content["path"])})


def _shown(jobs: list[Any], label: str) -> Iterable[Any]:
    """The jobs as they end, with a line of progress for every tenth of them."""
    for done, job in enumerate(as_completed(jobs), 1):
        if done % max(1, len(jobs) // 10) == 0:
            print(f"{label}: {done} of {len(jobs)}", flush=True)
        yield job


def _quiet() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
