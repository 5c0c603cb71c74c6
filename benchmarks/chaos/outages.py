"""What a campaign needs is taken away for a while: its PostgreSQL server, the space on its disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.postgres_server import PostgresServer

from benchmarks.chaos.rehearsed import drive, ended, handed_out, in_process, plan_in
from benchmarks.chaos.tally import State, Tally
from sweep.core.plan import CampaignPlan

TRIAL_SECONDS = 0.3
"""Long enough that an outage meets a running trial, short enough for many."""

OUTAGE_SECONDS = 3.0
AFTER_TRIALS = (2, 5, 8, 11)
"""Trials handed out when an outage begins."""

DISK_MIB = 4


def postgres_restarts() -> Tally:
    """The server crashes and comes back while the campaign runs; the last time the driver is killed meanwhile."""
    server = PostgresServer()
    tally = Tally()
    try:
        with tempfile.TemporaryDirectory() as folder:
            calm = plan_in(Path(folder), storage=server.new_database())
            drive(calm, Path(folder, "log"))
            undisturbed = State.of(calm)
        for kills in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                plan = plan_in(Path(folder), storage=server.new_database())
                name = "PostgreSQL restarted" + (", driver killed" if kills else "")
                _outages(
                    name, plan, Path(folder, "log"), lambda pid: server.stop(), lambda pid: server.start(), kills,
                    tally, undisturbed,
                )  # fmt: skip
    finally:
        server.close()
    return tally


def full_disks() -> Tally:
    """The campaign's file system is full for a while: a tmpfs of a few MiB that another file fills.

    Without the right to mount one, no file of the driver may grow for a while, which is named so.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        calm = plan_in(Path(folder))
        drive(calm, Path(folder, "log"))
        undisturbed = State.of(calm)
    for kills in (False, True):
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder, "disk")) as disk:
            fault, take_away, give_back = "files may not grow", files_stay_small, files_may_grow
            if os.path.ismount(disk):
                fault, take_away, give_back = "disk full", *filled(disk / "filler")
            name = fault + (", driver killed" if kills else "")
            _outages(name, plan_in(disk), Path(folder, "log"), take_away, give_back, kills, tally, undisturbed)
    return tally


def _outages(
    name: str,
    plan: CampaignPlan,
    log: Path,
    take_away: Callable[[int], object],
    give_back: Callable[[int], object],
    kills: bool,
    tally: Tally,
    undisturbed: State,
) -> None:
    """An outage after each of `AFTER_TRIALS`; with `kills` the driver dies in each and is started again after it.

    What takes away and gives back is told the driver's process id.
    """
    pid = in_process(partial(drive, plan, log, seconds=TRIAL_SECONDS))
    faults: list[tuple[State, int]] = []
    for count in AFTER_TRIALS:
        _until(lambda count=count: len(handed_out(log)) >= count)  # type: ignore[misc]
        faults.append((State.of(plan), len(handed_out(log))))
        take_away(pid)
        time.sleep(OUTAGE_SECONDS)
        if kills:
            os.kill(pid, signal.SIGKILL)
            ended(pid)
        give_back(pid)
        if kills:
            pid = in_process(partial(drive, plan, log, seconds=TRIAL_SECONDS))
    code = ended(pid)
    after, given = State.of(plan), handed_out(log)
    for number, (before, so_far) in enumerate(faults, start=1):
        tally.judge(f"{name} ({number})", before, after, undisturbed)
        tally.trained_again(f"{name} ({number})", before, given[so_far:])
    if code:
        tally.lost += 1
        tally.notes.append(f"{name}: the campaign ended with exit code {code}")


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of a few MiB, which only root can mount; a plain folder without the right to."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield place
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # readers may still be open


def filled(filler: Path) -> tuple[Callable[[int], object], Callable[[int], object]]:
    """What fills the filler's file system, and what empties it again; neither cares about the process."""
    return lambda pid: fill(filler), lambda pid: filler.unlink()


def fill(filler: Path) -> None:
    """No byte is left on the filler's file system."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def files_stay_small(pid: int) -> None:
    """Every write of the process beyond a file's first byte fails."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def files_may_grow(pid: int) -> None:
    """The limit is gone, as far as the process is still there."""
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the campaign does not go on")
        time.sleep(0.02)
