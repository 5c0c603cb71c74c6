"""`Journal`: the results of jobs as they end, a line each, so that an interrupted benchmark goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any, TypeAlias

Job: TypeAlias = tuple[Any, ...]
"""Name of a part and its arguments, all plain JSON types."""


class Journal:
    """Job to result. With `resume` it starts with what an earlier run wrote, but for the jobs that `again` names."""

    def __init__(self, path: Path, *, resume: bool, again: Callable[[Job], bool] = lambda job: False) -> None:
        self._path = path
        self._known: dict[Job, Any] = {}
        for line in path.read_text().splitlines() if resume and path.exists() else ():
            content = json.loads(line)
            job = tuple(content["job"])
            if not again(job):
                self._known[job] = content["result"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(_line(job, result) for job, result in self._known.items()))

    def run(self, pool: Executor, play: Callable[[Job], Any], jobs: Iterable[Job]) -> list[Any]:
        """The results of the jobs, in their order; those not yet known are played by the pool."""
        wanted = list(jobs)
        running = {pool.submit(play, job): job for job in wanted if job not in self._known}
        for done, ended in enumerate(as_completed(running), 1):
            job = running[ended]
            self._known[job] = ended.result()
            with self._path.open("a") as file:
                file.write(_line(job, self._known[job]))
            if done % max(1, len(running) // 10) == 0:
                print(f"{wanted[0][0]}: {done} of {len(running)}", flush=True)
        return [self._known[job] for job in wanted]


def _line(job: Job, result: Any) -> str:
    return json.dumps({"job": job, "result": result}) + "\n"
