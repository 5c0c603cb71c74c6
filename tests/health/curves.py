"""Tables for the tests of curve rules: straight lines, noise that repeats, and the metric names of verl."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from sweep.health.code import Code
from sweep.health.diagnosis import Diagnosis, diagnose
from sweep.health.evidence import RunFacts
from sweep.health.finding import Finding
from sweep.health.limits import DEFAULT, Limits
from sweep.health.metric_table import MetricTable

SCORE = "critic/score/mean"
KL = "actor/reward_kl_penalty"
NORM = "actor/grad_norm"
ENTROPY = "actor/entropy"


def line(first: float, last: float, points: int) -> list[float]:
    """Evenly from first to last."""
    return [first + (last - first) * i / max(points - 1, 1) for i in range(points)]


def noisy(values: Iterable[float], spread: float, seed: int = 0) -> list[float]:
    """The values with normal noise of that standard deviation."""
    draw = random.Random(seed)
    return [value + draw.gauss(0, spread) for value in values]


def table(columns: dict[str, Sequence[float | None]], steps: Iterable[int] | None = None) -> MetricTable:
    """One row a step from 1; None where a metric was not logged."""
    length = len(next(iter(columns.values())))
    numbers = list(steps) if steps is not None else list(range(1, length + 1))
    return MetricTable.from_rows(
        (step, {name: value for name, values in columns.items() if (value := values[i]) is not None})
        for i, step in enumerate(numbers)
    )


def told(
    columns: dict[str, Sequence[float | None]],
    facts: RunFacts | None = None,
    limits: Limits = DEFAULT,
    steps: Iterable[int] | None = None,
) -> Diagnosis:
    """The diagnosis of such a table."""
    return diagnose(table(columns, steps), facts, limits)


def codes(diagnosis: Diagnosis) -> set[Code]:
    """The codes of its findings."""
    return {finding.code for finding in diagnosis.findings}


def the(diagnosis: Diagnosis, code: Code) -> Finding:
    """The finding with the code."""
    return next(finding for finding in diagnosis.findings if finding.code is code)
