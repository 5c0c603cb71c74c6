"""`main`: play everything over the cores, write JSON, tables and figure, print the headline last."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.decisions import stops, verdicts
from benchmarks.decisions.campaigns import METHODS, Campaign, play_one
from benchmarks.decisions.figure import draw
from benchmarks.decisions.journal import Job, Journal
from benchmarks.decisions.summary import headline, summarize, table
from benchmarks.decisions.verdicts import CVS
from benchmarks.decisions.worlds import KINDS

RESULTS = Path(__file__).resolve().parents[1] / "results"
PRODUCT = "staged, as shipped"
FULL = {"verdicts": 2000, "stops": 500, "campaigns": 200}
QUICK = {"verdicts": 200, "stops": 40, "campaigns": 16}
"""Repetitions of a cell; campaigns a method and noise level, spread evenly over the kinds of surface."""

CHUNK = 20


def main() -> None:
    """Play everything, write the results, print the tables and the headline."""
    started = time.monotonic()
    size = QUICK if os.environ.get("QUICK") == "1" else FULL
    path = RESULTS / ("decisions-quick.json" if size is QUICK else "decisions.json")
    size = {**size, "campaigns": int(os.environ.get("CAMPAIGNS") or size["campaigns"])}
    again = [m.strip() for m in os.environ.get("AGAIN", "").split(";") if m.strip()]
    resume = bool(again) or os.environ.get("RESUME") == "1"
    workers = int(os.environ.get("WORKERS") or os.cpu_count() or 1)
    journal = Journal(
        RESULTS / "raw" / f"{path.stem}.jsonl", resume=resume, again=lambda job: job[0] in again or job[1] in again
    )
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_quiet) as pool:
        seen = journal.run(pool, play, _chunks("verdicts", size["verdicts"]))
        shares = journal.run(pool, play, _chunks("stops", size["stops"]))
        played = journal.run(pool, play, _campaign_jobs(size["campaigns"]))
    summary = summarize(
        _counted(seen, lambda key, found: verdicts.cell(key, [verdicts.Seen.from_json(s) for s in found])),
        _counted(shares, stops.stop_cell),
        [Campaign.from_json(c) for c in played],
    )
    summary["run"] = {"seconds": round(time.monotonic() - started), "workers": workers, "repetitions": size}
    path.write_text(json.dumps(summary, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(summary) + "\n")
    draw(summary, path.with_suffix(".png"))
    print(table(summary))
    print(json.dumps(headline(summary, PRODUCT)))


def play(job: Job) -> Any:
    """The result of a job as plain JSON types."""
    match job:
        case ("verdicts", at, count):
            return [(key, [s.to_json() for s in seen]) for key, seen in verdicts.verdict_cells(count, at)]
        case ("stops", at, count):
            return stops.stop_cells(count, at)
        case ("campaign", method, kind, cv, number):
            return play_one(method, kind, cv, number).to_json()
    raise AssertionError(job)


def _chunks(part: str, count: int) -> Iterator[Job]:
    for at in range(0, count, CHUNK):
        yield part, at, min(CHUNK, count - at)


def _campaign_jobs(count: int) -> Iterator[Job]:
    for number, kind, cv, method in itertools.product(range(count // len(KINDS)), KINDS, CVS, METHODS):
        yield "campaign", method, kind, cv, number


def _counted(chunks: list[Any], count: Callable[[Any, list[Any]], Any]) -> list[dict[str, Any]]:
    """The cells of a part, gathered from its chunks, as JSON types."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for chunk in chunks:
        for key, seen in chunk:
            found[tuple(key)].extend(seen)
    return [count(key, seen).to_json() for key, seen in found.items()]


def _quiet() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
