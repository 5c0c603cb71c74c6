"""Writes a console log of a gigabyte as verl under Ray writes it, diagnoses it, and prints time and memory.

The log is the hard kind: one metric line in five lines, each of 110 metrics, colour codes and process prefixes, one in
ten wrapped, progress bars, workers that talk in between. The last line is JSON with bytes, lines, steps, seconds of
writing and of the diagnosis, its CPU seconds and peak MiB, and the verdict.

Usage: python benchmarks/diagnose_large_log.py [--gib 1.0] [--dense] [--keep PATH]
`--dense` leaves out all noise: the same size then holds about four times the values.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_SECONDS = 60.0
LIMIT_MIB = 500.0

HEADLINES = {
    "critic/score/mean": lambda step, draw: 0.2 + 0.5 * (1 - 1 / (1 + step / 500)) + draw.gauss(0, 0.02),
    "critic/rewards/mean": lambda step, draw: 0.2 + 0.5 * (1 - 1 / (1 + step / 500)) + draw.gauss(0, 0.02),
    "actor/reward_kl_penalty": lambda step, draw: 0.08 + draw.gauss(0, 0.01),
    "actor/ppo_kl": lambda step, draw: draw.gauss(5e-4, 2e-4),
    "actor/grad_norm": lambda step, draw: draw.lognormvariate(-1, 0.3),
    "actor/entropy": lambda step, draw: 0.4 + draw.gauss(0, 0.02),
    "critic/vf_loss": lambda step, draw: 0.05 + abs(draw.gauss(0, 0.01)),
    "timing_s/step": lambda step, draw: 8 + draw.random(),
}
"""Metrics that rules read, as a healthy run shows them."""

OTHERS = [f"training/filler_metric_{n}/mean" for n in range(102)]
PREFIX = "\x1b[36m(TaskRunnerV1 pid=4378)\x1b[0m "


def blocks(dense: bool) -> Iterator[str]:
    """The log, a few lines at a time, without end."""
    draw = random.Random(0)
    tail = " - ".join(f"{name}:{draw.random()!r}" for name in OTHERS[:-2])
    typed = f"{OTHERS[-2]}:np.float64({draw.random()!r}) - {OTHERS[-1]}:np.int32(2)"
    step = 0
    while True:
        step += 1
        head = " - ".join(f"{name}:{value(step, draw)!r}" for name, value in HEADLINES.items())
        line = f"step:{step} - {head} - {tail} - {typed}"
        if step % 10 == 0:
            cut = draw.randrange(200, len(line) - 200)
            line = f"{line[:cut]}\n{PREFIX}{line[cut:]}"
        yield f"{PREFIX}{line}\n" if dense else f"{PREFIX}{line}\n{noise(step)}"


def noise(step: int) -> str:
    """What stands between two metric lines."""
    return (
        f"\x1b[36m(WorkerDict pid={9 + step % 8}, ip=10.0.0.{step % 8})\x1b[0m [rank-{step % 8}]: memory allocated "
        f"{step % 80}.5 GB, reserved 45.1 GB\x1b[32m [repeated 7x across cluster]\x1b[0m\n"
        f"\rTraining Progress:   2%|x         | {step}/100000 [04:10<3:20:00, 20.4s/it]\n"
        f"(RewardLoopWorker pid=77) INFO 2026-01-01 12:00:00 score computed for global_step:{step} in 0.02 s\n"
        '(vLLMHttpServer pid=5) INFO:     127.0.0.1:4711 - "POST /generate HTTP/1.1" 200 OK\n'
    )


def write_log(path: Path, size: int, dense: bool) -> tuple[int, int]:
    """Steps and lines written until the file has the size."""
    steps = lines = written = 0
    with path.open("w", encoding="utf-8", buffering=1 << 20) as stream:
        for block in blocks(dense):
            written += stream.write(block)
            steps += 1
            lines += block.count("\n")
            if written >= size:
                return steps, lines
    raise AssertionError("the log has no end")


def measure(path: Path) -> dict[str, object]:
    """Diagnose the log in a process of its own: times, peak memory, what was read; empty if it failed."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "sweep.diagnose", str(path), "--json"], capture_output=True, text=True, check=False
    )
    took = time.monotonic() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        print(done.stderr, file=sys.stderr)
        return {}
    run = json.loads(done.stdout)["runs"][0]
    return {
        "diagnose_seconds": round(took, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "cpus": os.cpu_count(),
        "peak_mib": round(used.ru_maxrss / 1024, 1),
        "steps_read": run["steps"],
        "metrics_read": run["metrics"],
        "verdict": run["verdict"],
    }


def main() -> int:
    """Write, diagnose, print; 0 if all steps were read and time and memory stay within the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    path = options.keep or Path(tempfile.mkdtemp(prefix="sweep-large-log-")) / "console.log"
    begun = time.monotonic()
    steps, lines = write_log(path, int(options.gib * 2**30), options.dense)
    written: dict[str, object] = {"bytes": path.stat().st_size, "lines": lines, "steps": steps}
    written["write_seconds"] = round(time.monotonic() - begun, 1)
    measured = measure(path)
    if not options.keep:
        path.unlink()
        path.parent.rmdir()
    if not measured:
        return 1
    took, peak_mib = float(str(measured["diagnose_seconds"])), float(str(measured["peak_mib"]))
    print(f"{steps} steps in {lines} lines: {took} s, peak {peak_mib} MiB, verdict {measured['verdict']}")
    print(json.dumps({**written, **measured, "limit_seconds": LIMIT_SECONDS, "limit_mib": LIMIT_MIB}))
    return 0 if took <= LIMIT_SECONDS and peak_mib <= LIMIT_MIB and measured["steps_read"] == steps else 1


if __name__ == "__main__":
    sys.exit(main())
