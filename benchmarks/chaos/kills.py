"""Kill -9 after every recorded event: each write of a whole campaign to its storage is the last of one driver."""

from __future__ import annotations

import signal
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.chaos.rehearsed import drive, ended, handed_out, in_process, plan_in
from benchmarks.chaos.tally import State, Tally


def after_every_event(slots: int = 1) -> Tally:
    """One fault a write: the campaign killed after it, run again, compared with the undisturbed one."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        whole = plan_in(Path(folder), slots=slots)
        writes = drive(whole, Path(folder, "log"))
        undisturbed = State.of(whole)
    for number in range(1, writes + 1):
        name = f"killed after write {number} of {writes}, {slots} at once"
        with tempfile.TemporaryDirectory() as folder:
            plan, log = plan_in(Path(folder), slots=slots), Path(folder, "log")
            code = ended(in_process(partial(drive, plan, log, die_after=number)))
            before, given = State.of(plan), handed_out(log)
            again = ended(in_process(partial(drive, plan, log)))
            tally.judge(name, before, State.of(plan), undisturbed)
            tally.trained_again(name, before, handed_out(log)[len(given) :])
            if code != -signal.SIGKILL or again:
                tally.lost += 1
                tally.notes.append(f"{name}: the drivers ended with {code} and {again}")
    return tally
