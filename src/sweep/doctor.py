"""`python -m sweep.doctor LOG`: why a verl run died, and whether running it again makes sense.

Exits with 0 if the log shows no failure, with 1 if it shows one, and with 2 if it cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sweep.arguments import Parser
from sweep.report.progress import say

if TYPE_CHECKING:
    from sweep.health.doctor import Diagnosis

EXIT_FAILURE, EXIT_UNREADABLE = 1, 2

PIECE_BYTES = 1 << 16
"""Bytes of a line that are read at once, so that a log without line ends does not fill the memory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the diagnosis and return the exit code."""
    options = _parser().parse_args(arguments)
    from sweep.health.doctor import Evidence, diagnose_log

    evidence = Evidence(
        granted_cpus=options.granted_cpus,
        host_cpus=options.host_cpus,
        ray_version=options.ray_version,
        checkpoints=tuple(options.checkpoint),
        total_steps=options.total_steps,
        exit_code=options.exit_code,
        silent_seconds=options.silent_seconds,
    )
    try:
        if options.log == "-":
            diagnosis = diagnose_log(lines_of(sys.stdin.buffer), evidence)
        else:
            with Path(options.log).open("rb") as stream:
                diagnosis = diagnose_log(lines_of(stream), evidence)
    except OSError as problem:
        print(f"error: {options.log} cannot be read: {problem.strerror or problem}", file=sys.stderr)
        return EXIT_UNREADABLE
    say(json.dumps(diagnosis.to_json(), indent=2, default=str) if options.json else as_text(diagnosis))
    return 0 if diagnosis.counts_as_result else EXIT_FAILURE


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """The stream's lines as text; bytes that are no UTF-8 are replaced, and a huge line comes in pieces."""
    while piece := stream.readline(PIECE_BYTES):
        yield piece.decode("utf-8", errors="replace").replace("\0", "")


def as_text(diagnosis: Diagnosis) -> str:
    """The diagnosis for people."""
    rows = [
        f"{diagnosis.code}: {diagnosis.title}",
        f"  class       {diagnosis.failure_class.value}, in phase {diagnosis.phase}, after step {diagnosis.last_step}",
        f"  confidence  {diagnosis.confidence.value}",
    ]
    if diagnosis.line_number:
        rows.append(f"  line {diagnosis.line_number:<6} {diagnosis.cause_line[:400]}")
    numbers = ", ".join(f"{name}={value}" for name, value in diagnosis.computed.items())
    rows += [f"  numbers     {numbers}"] if numbers else []
    rows += [f"  fix {place}       {text}" for place, text in enumerate(diagnosis.fix, 1)]
    rows += [f"  not         {text}" for text in diagnosis.avoid]
    times = f", at most {diagnosis.max_retries} times" if diagnosis.max_retries else ""
    rows.append(f"  run again   {diagnosis.retry.value}{times}")
    rows += [f"  resume from {diagnosis.resume_from}"] if diagnosis.resume_from else []
    rows += [f"  also seen   {', '.join(diagnosis.also_seen)}"] if diagnosis.also_seen else []
    rows += [f"  source      {diagnosis.source}"]
    return "\n".join(rows)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m sweep.doctor", description=(__doc__ or "").strip())
    parser.add_argument("log", help="console log of a verl run; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--total-steps", type=int, help="steps that the run should have reached")
    parser.add_argument("--exit-code", type=int, help="exit code of the process")
    parser.add_argument(
        "--silent-seconds", type=float, help="seconds since the log's last line, of a run that is alive"
    )
    parser.add_argument("--granted-cpus", type=int, help="CPUs that the job was granted")
    parser.add_argument("--host-cpus", type=int, help="CPUs that its host has")
    parser.add_argument("--ray-version", help="Ray's version there")
    parser.add_argument("--checkpoint", action="append", default=[], metavar="NAME", help="a complete checkpoint")
    return parser


if __name__ == "__main__":
    sys.exit(main())
