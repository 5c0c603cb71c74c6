"""`python -m sweep.preflight [OVERRIDES...]`: what is wrong with a verl configuration, before anything is started.

Takes verl's own overrides; a key with several values, as of Hydra's multirun, makes several runs, which are checked one
by one and together. Exits with 0 if nothing is in the way of a run and with 2 if something is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep.arguments import Parser, count, pairs, size
from sweep.errors import SweepError
from sweep.report.progress import say

if TYPE_CHECKING:
    from sweep.engines.verl.facts import Machine
    from sweep.health.preflight.finding import PreflightFinding
    from sweep.health.preflight.limits import PreflightLimits

EXIT_CONFIG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings and return the exit code."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        findings = inspect(options.overrides, options)
    except SweepError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    from sweep.health.preflight.finding import Severity, verdict

    worst = verdict(findings)
    if options.json:
        content = {"verdict": worst.value, "findings": [finding.to_json() for finding in findings]}
        say(json.dumps(content, indent=2, default=str))
    else:
        say(as_text(findings, quiet=options.quiet))
    return EXIT_CONFIG if worst is Severity.ERROR else 0


def inspect(overrides: Sequence[str], options: argparse.Namespace) -> tuple[PreflightFinding, ...]:
    """All findings on the overrides: ours, and where it is wanted verl's own.

    Raises:
        ConfigError: verl is not installed, the overrides are not in Hydra's grammar, or a limit cannot be.
    """
    from sweep.engines.verl.compose import combinations, compose
    from sweep.health.preflight import check_together

    limits = _limits(options.limit)
    several, runs = combinations(overrides)
    swept = several | set(options.swept)
    found = [finding for lines in runs.values() for finding in _inspect_one(lines, options, swept, limits)]
    found += check_together({own: compose(lines).config for own, lines in runs.items()})
    unique = {(finding.code, finding.keys, finding.what): finding for finding in found}
    return tuple(sorted(unique.values(), key=lambda finding: finding.severity.rank))


def _inspect_one(
    lines: list[str], options: argparse.Namespace, swept: frozenset[str], limits: PreflightLimits
) -> Sequence[PreflightFinding]:
    from dataclasses import replace

    from sweep.engines.verl.compose import compose
    from sweep.engines.verl.facts import gather
    from sweep.engines.verl.validate import verl_objections
    from sweep.health.preflight import preflight

    composed = compose(lines)
    known = gather(composed, machine=_machine(options), trial_steps=options.steps, swept=swept, limits=limits)
    found = preflight(composed.config, replace(known, rows_after_filter=options.rows_after_filter))
    return found if composed.unknown or not options.verl else (*verl_objections(lines), *found)


def as_text(findings: Sequence[PreflightFinding], *, quiet: bool = False) -> str:
    """The findings for people, worst first, and a last line that counts them."""
    from sweep.health.preflight.finding import Severity

    shown = [finding for finding in findings if not (quiet and finding.severity is Severity.INFO)]
    blocks = []
    for finding in shown:
        block = [f"{finding.severity.value.upper():5}  {finding.code}: {finding.what}", f"       why: {finding.why}"]
        block += [f"       try: {'  or  '.join(finding.nearest)}"] if finding.nearest else []
        block += [f"       source: {finding.source}"] if finding.source else []
        blocks.append("\n".join(block))
    counts = {level: sum(finding.severity is level for finding in findings) for level in Severity}
    blocks.append(f"{counts[Severity.ERROR]} errors, {counts[Severity.WARN]} warnings, {counts[Severity.INFO]} remarks")
    return "\n".join(blocks)


def _machine(options: argparse.Namespace) -> Machine:
    """This machine, with what the command line says of another one on top."""
    from dataclasses import replace

    from sweep.engines.verl.facts import this_machine

    told = {"gpu_count": options.gpus, "gpu_gib": options.gpu_gib, "logical_cpus": options.cpus}
    return replace(this_machine(), **{name: value for name, value in told.items() if value is not None})


def _limits(changes: Sequence[str]) -> PreflightLimits:
    """The method's limits with those that were given on the command line in their place.

    Raises:
        ConfigError: for a limit that there is not, or a value that it cannot have.
    """
    from typing import get_type_hints

    from sweep.health.preflight.limits import PreflightLimits
    from sweep.yaml_values import fitting, known_keys

    hints, asked = get_type_hints(PreflightLimits, include_extras=True), pairs(changes, "--limit")
    known_keys("--limit", asked, hints)
    return PreflightLimits(
        **{name: fitting(f"--limit {name}", hints[name], _as_number(text)) for name, text in asked.items()}
    )


def _as_number(text: str) -> float | str:
    """The number that the text is, or the text for a message about it."""
    try:
        return float(text)
    except ValueError:
        return text


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m sweep.preflight", description=(__doc__ or "").strip())
    parser.add_argument("overrides", nargs="*", help="verl settings as key=value, in Hydra's grammar")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="leave out remarks")
    parser.add_argument("--steps", type=count, help="training steps that the run must reach")
    parser.add_argument("--swept", action="append", default=[], metavar="KEY", help="a key that is to be searched")
    parser.add_argument("--rows-after-filter", type=count, help="rows that verl's length filter leaves, where known")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another threshold; the names are the fields of sweep.health.preflight.limits",
    )
    parser.add_argument("--gpus", type=count, help="GPUs of the machine, if not this one")
    parser.add_argument("--gpu-gib", type=size, help="memory of one GPU in GiB")
    parser.add_argument("--cpus", type=count, help="logical CPUs of the machine")
    parser.add_argument("--no-verl", dest="verl", action="store_false", help="skip verl's own, slower validation")
    return parser


if __name__ == "__main__":
    sys.exit(main())
