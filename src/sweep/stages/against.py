"""`against`: a winner over its baseline with an interval to print; rules decide by `sweep.stats.verdict` alone.

Where too few seeds measured the spread between runs, the interval leans on an assumed one and says so.
"""

from __future__ import annotations

import math

from sweep.core.stage import Stage
from sweep.core.winner import Ratio, Score
from sweep.stages import objective
from sweep.stages.arms import Measured, paired
from sweep.stages.objective import Origin
from sweep.stats.efficiency import PRIOR_CV, combined, pooled_spread, ratio
from sweep.stats.estimate import ASSUMED_DEGREES, Estimate, Interval, Spread

SCORE_DEGREES = 10
"""Degrees behind the error of one run's score where a rule compares scores. Ours: that of ten blocks of steps."""


def against(stage: Stage, winner: Measured, base: Measured, origin: Origin | None = None) -> Ratio | None:
    """The ratio of the two arms' scores, paired by seed; None where none exists, as for a baseline of nothing."""
    sides = estimates(stage, winner, base, origin)
    spread, assumed = leaning(pooled_spread(sides))
    return printed(ratio(*sides, pooled_variance=spread), assumed)


def estimates(stage: Stage, arm: Measured, other: Measured, origin: Origin | None = None) -> list[list[Estimate]]:
    """The scores of both arms by seed, with the error within each run; without an origin the other's pace is used."""
    origin = objective.pace_of(stage, other.finished) if origin is None else origin
    return [[_estimate(objective.score(stage, f, origin)) for f in runs] for runs in paired(arm, other)]


def leaning(measured: Spread | None) -> tuple[Spread, bool]:
    """The spread to print an interval with, and whether it leans on the assumed one."""
    if measured is not None and measured.degrees >= ASSUMED_DEGREES:
        return measured, False
    spread = combined(measured, Spread(PRIOR_CV**2, ASSUMED_DEGREES))
    assert spread is not None
    return spread, True


def printed(seen: Interval, assumed: bool) -> Ratio | None:
    """The interval as a winner keeps it."""
    return Ratio(seen.value, seen.low, seen.high, assumed) if seen.known else None


def _estimate(score: Score) -> Estimate:
    error = score.standard_error if math.isfinite(score.standard_error) else 0.0
    return Estimate(score.value, error, SCORE_DEGREES)
