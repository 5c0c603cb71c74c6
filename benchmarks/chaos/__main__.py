"""`make chaos`: every fault of the list, one part after another; `PARTS=kills,disk` runs some of them,
`KILLS=5 SEED=8` kills the real driver another number of times at other moments.

The last line is `N faults, 0 lost, 0 repeated`; anything lost or repeated is named above it and ends with exit code 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from benchmarks.chaos import kills, outages, real
from benchmarks.chaos.tally import Tally

PARTS: dict[str, Callable[[], Tally]] = {
    "kills": kills.after_every_event,
    "kills-2": lambda: kills.after_every_event(slots=2),
    "postgres": outages.postgres_restarts,
    "disk": outages.full_disks,
    "driver": real.driver_kills,
    "trial": real.trial_kills,
    "node": real.node_and_driver_lost,
}


def main() -> int:
    """Exit code 0 if nothing was lost and nothing repeated."""
    wanted = os.environ.get("PARTS", ",".join(PARTS)).split(",")
    total = Tally()
    for name in wanted:
        begin = time.monotonic()
        tally = PARTS[name]()
        total.add(tally)
        print(f"{name}: {tally.line()} ({time.monotonic() - begin:.0f} s)", *tally.notes, sep="\n  ", flush=True)
    print(total.line())
    return 1 if total.lost or total.repeated or not total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
