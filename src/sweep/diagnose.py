"""`python -m sweep.diagnose PATH [--json] [--figure OUT]`: what a run's log shows, how sure, and what to change.

PATH is verl's JSON lines, a console log, a CSV export, an MLflow run's folder, an MLflow database, or a tracking
address. Exits with 0 if nothing is worse than a remark, 1 if something is, and 2 if the log cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.arguments import Parser, count, pairs
from sweep.errors import ConfigError, SweepError
from sweep.report.progress import say

if TYPE_CHECKING:
    from sweep.health.diagnosis import Diagnosis
    from sweep.health.evidence import RunFacts
    from sweep.health.finding import Finding
    from sweep.health.limits import Limits
    from sweep.health.readers.logged_run import LoggedRun

EXIT_FOUND = 1
JSON_VERSION = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the diagnosis of each run in the log and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _diagnose(options)
    except SweepError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code


def as_text(run: LoggedRun, diagnosis: Diagnosis) -> str:
    """The diagnosis for people: what was read, the verdict, the screen, then the findings gravest first."""
    table = run.table
    span = f", steps {diagnosis.first_step} to {diagnosis.last_step}" if len(table) else ""
    lines = [f"{run.label}: {len(table)} rows{span}, {len(table.columns)} metrics"]
    lines += [f"  note: {note}" for note in run.notes]
    leading = diagnosis.leading
    lines.append(
        f"verdict: {diagnosis.verdict} ({leading.code.value if leading else 'nothing wrong in what is there'})"
    )
    for reading in diagnosis.readings:
        band = f", band {reading.band[0]:g} to {reading.band[1]:g}" if reading.band else ""
        level = f"{reading.level:.4g}{band}" if reading.metric else "-"
        lines.append(f"  {reading.metric or reading.quantity.value}: {level}: {reading.state}")
    for finding in diagnosis.findings:
        lines += ["", *_block(finding)]
    for finding, cause in diagnosis.explained:
        lines += ["", f"set aside: {finding.code.name} ({finding.seen}), since {cause.name} explains it"]
    return "\n".join(lines)


def _block(finding: Finding) -> list[str]:
    steps = f" at {finding.steps}" if finding.steps else ""
    title = f"{finding.severity.value}: {finding.code.name}, {finding.metric}{steps}"
    lines = [title, f"  seen: {finding.seen} (confidence {finding.confidence.value})"]
    lines += [f"  do: {finding.advice}"] if finding.advice else []
    lines += [f"  try: {'; or '.join(str(move) for move in finding.direction)}"] if finding.direction else []
    return [*lines, f"  source: {finding.source}"] if finding.source else lines


def _diagnose(options: argparse.Namespace) -> int:
    from sweep.health.diagnosis import diagnose
    from sweep.health.evidence import Evidence
    from sweep.health.finding import Severity
    from sweep.health.readers.open_log import read_runs

    limits = _limits(options.limit)
    runs = read_runs(options.path, options.run)
    found = [(run, facts := _facts(options, run), diagnose(run.table, facts, limits)) for run in runs]
    if options.figure:
        from sweep.report.diagnosis_figure import write_figure

        for path, (run, facts, diagnosis) in zip(_figure_paths(options.figure, len(found)), found, strict=True):
            write_figure(path, Evidence.of(run.table, facts, limits), diagnosis, run.label)
    if options.json:
        say(json.dumps({"version": JSON_VERSION, "runs": [_as_json(run, d) for run, _, d in found]}, indent=2))
    else:
        say("\n\n".join(as_text(run, diagnosis) for run, _, diagnosis in found))
    bad = any(f.severity is not Severity.INFO for _, _, d in found for f in d.findings)
    return EXIT_FOUND if bad else 0


def _as_json(run: LoggedRun, diagnosis: Diagnosis) -> dict[str, object]:
    return {"label": run.label, "metrics": len(run.table.columns), "notes": list(run.notes), **diagnosis.to_json()}


def _figure_paths(target: str, count: int) -> list[Path]:
    """One path a run: the one asked for, numbered if there are several."""
    path = Path(target)
    return [path] if count == 1 else [path.with_stem(f"{path.stem}-{n}") for n in range(1, count + 1)]


def _facts(options: argparse.Namespace, run: LoggedRun) -> RunFacts:
    from dataclasses import replace

    from sweep.core import verl_keys as keys
    from sweep.health.evidence import RunFacts

    given = RunFacts(config={**run.config, **pairs(options.config, "--config")})
    every = given.number(keys.SAVE_FREQ)
    return replace(
        given,
        units={str(k): str(v) for k, v in pairs(options.unit, "--unit").items()},
        gpu_total_gib=options.gpu_gib,
        host_total_gib=options.host_gib,
        save_interval_steps=int(every) if every is not None and every >= 1 else None,
        dataset_rows=options.rows,
        wanted_steps=options.steps,
    )


def _limits(changes: Sequence[str]) -> Limits:
    """The method's limits with those that were given on the command line in their place.

    Raises:
        ConfigError: for a limit that there is not, or a value that it cannot have.
    """
    from dataclasses import replace

    from sweep.health.limits import DEFAULT, limit_problem, limit_value

    values: dict[str, Any] = {}
    for name, text in pairs(changes, "--limit").items():
        default = getattr(DEFAULT, name, None)
        if not isinstance(default, int | float | tuple):
            raise ConfigError(f"--limit knows nothing called {name}; the names are the fields of sweep.health.limits")
        like = ",".join(map(str, default)) if isinstance(default, tuple) else default
        try:
            numbers = [float(part) for part in text.strip("[]").split(",")]
        except ValueError as error:
            raise ConfigError(f"--limit {name} must be like {like}, got {text}") from error
        value = numbers if isinstance(default, tuple) or len(numbers) > 1 else numbers[0]
        if problem := limit_problem(name, value):
            raise ConfigError(f"--limit {name} {problem}")
        values[name] = limit_value(name, value)
    return replace(DEFAULT, **values)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m sweep.diagnose",
        description="Say what a verl run's log shows: the three-metric screen over the last 500 steps and more.",
        epilog="Exit code: 0 nothing worse than a remark, 1 something is, 2 the log cannot be read.",
    )
    parser.add_argument("path", help="log file, MLflow folder or database, tracking address, or runs:/RUN_ID")
    parser.add_argument("--run", help="which run of an MLflow store, by id or name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--figure", metavar="OUT", help="also draw the curves to OUT.png or OUT.html")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a verl setting of the run")
    parser.add_argument("--unit", action="append", default=[], metavar="METRIC=TEXT", help="the unit of a metric")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="NAME=VALUE", help="another threshold; a pair as LOW,HIGH"
    )
    parser.add_argument("--gpu-gib", type=float, help="memory of one GPU, to project when creeping memory meets it")
    parser.add_argument("--host-gib", type=float, help="memory of the host, likewise")
    parser.add_argument("--rows", type=count, help="rows of the training data, to tell how long verl runs")
    parser.add_argument("--steps", type=count, help="steps that the run should reach, likewise")
    return parser


if __name__ == "__main__":
    sys.exit(main())
