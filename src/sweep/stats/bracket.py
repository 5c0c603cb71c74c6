"""`advance`: where to measure a knob next, and when its best value is known: bracket the peak, then fit it.

From where the configuration stands a step up, then on in the better direction until the score falls; the peak of the
parabola through all points is measured once and the walk has settled. Four or five runs a knob, and every one of them
bears on the answer, so that a single noisy run misleads less than it would as a winner. Positions are whatever makes
the knob's effect even, the logarithm for most; `snap` moves a position to the nearest one that can be run. A pure
function of the points: their order does not matter.

Whether the settled value is really better than the start is not said here: that is `sweep.stats.verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

MOST_POINTS = 6
"""Values of a knob to measure, start and peak included. Ours, by simulation: the seventh changes nothing."""

NEAR_SHARE = 0.2
"""A peak this close to a measured point, as a share of the step, is not measured again. Ours."""

PEAK_POINTS = 3
"""Points that a parabola needs: fewer keep no run in reserve for its peak."""

TIE_DIGITS = 9
"""Decimals of a height by which two points differ or are equal. Ours."""

ROUNDING = 1e-9
"""A bend of this share of the scores is rounding, not a peak. Ours."""

_SAME = 1e-6


def without_rounding(value: float) -> float:
    """The value to `TIE_DIGITS` significant digits, so that what is equal by arithmetic is equal on any machine."""
    return float(f"{value:.{TIE_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure here next; `aimed` is what was asked for where `snap` moved it."""

    position: float
    reason: str
    aimed: float | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The best measured position, and the score there on the fitted parabola (the measured one without a fit)."""

    position: float
    score: float
    reason: str


Advance: TypeAlias = Probe | Settled
Snap: TypeAlias = Callable[[float], float]


def _anywhere(position: float) -> float:
    return position


def advance(
    scores: Mapping[float, float],
    *,
    start: float,
    step: float,
    low: float,
    high: float,
    most_points: int = MOST_POINTS,
    near_share: float = NEAR_SHARE,
    snap: Snap = _anywhere,
) -> Advance:
    """The next position to measure, or the best one.

    Args:
        scores: position to score, higher is better; NaN for a position whose trial died.
        start: the configuration's own position, between `low` and `high`.
        step: distance of the first move; negative to begin downwards.
        low: lowest position allowed.
        high: highest position allowed.
        most_points: positions to measure at most, the peak included.
        near_share: how near to a measured position, as a share of the step, the peak is not measured again.
        snap: the position that is run when this one is asked for; leaves `start` and its own results where they are.
    """
    ladder = _Ladder(scores, start, step, low, high, snap)
    for rung in (0, 1):
        if not ladder.measured(rung):
            return ladder.probe(rung, "start" if rung == 0 else "first move")
    way = 1 if ladder.score(1) > ladder.score(0) else -1
    rung = 1 if way == 1 else 0
    while ladder.at(rung + way) != ladder.at(rung):
        following = rung + way
        if not ladder.measured(following):
            if len(scores) >= max(most_points - 1, min(most_points, PEAK_POINTS)):
                found = _peak(scores, start, near_share * abs(step), most_points, snap)
                idle = isinstance(found, Settled) and len(scores) < most_points
                return ladder.probe(following, "still better, and a run is left") if idle else found
            return ladder.probe(following, "on in the better direction")
        if not ladder.score(following) > ladder.score(rung):
            break
        rung = following
    return _peak(scores, start, near_share * abs(step), most_points, snap)


class _Ladder:
    """Positions in steps from the start, within the range, with their scores; a dead position scores lowest."""

    def __init__(
        self, scores: Mapping[float, float], start: float, step: float, low: float, high: float, snap: Snap
    ) -> None:
        self._scores, self._start, self._step, self._low, self._high = scores, start, step, low, high
        self._snap = snap

    def at(self, rung: int) -> float:
        return self._place(rung)[0]

    def probe(self, rung: int, reason: str) -> Probe:
        return _probe(*self._place(rung), reason)

    def _place(self, rung: int) -> tuple[float, float]:
        """The rung's position and what is asked for to get there."""
        position = aim = min(self._high, max(self._low, self._start))
        for _ in range(abs(rung)):
            position, aim = self._onward(position, self._step if rung > 0 else -self._step)
        return position, aim

    def _onward(self, position: float, step: float) -> tuple[float, float]:
        """The next position that can be run, a step away or as many as it takes; the same one at the end."""
        steps = 1
        while True:
            aim = min(self._high, max(self._low, position + steps * step))
            found = self._snap(aim)
            if (found - position) * step > 0 and abs(found - position) > _SAME:
                return found, aim
            if aim in (self._low, self._high):
                return position, position
            steps *= 2

    def measured(self, rung: int) -> bool:
        return _nearest(self._scores, self.at(rung), _SAME) is not None

    def score(self, rung: int) -> float:
        position = _nearest(self._scores, self.at(rung), _SAME)
        score = math.nan if position is None else self._scores[position]
        return score if math.isfinite(score) else -math.inf


def _peak(scores: Mapping[float, float], start: float, near: float, most_points: int, snap: Snap) -> Advance:
    """The parabola's peak if it is worth a run, else the best point by the parabola."""
    alive = {x: y for x, y in sorted(scores.items()) if math.isfinite(y)}
    if not alive:
        return Settled(min(scores, key=lambda x: (abs(x - start), x)), math.nan, "every value died")
    highest = max(alive, key=lambda x: alive[x])
    fit = _parabola(alive)
    if fit is None:
        return Settled(highest, alive[highest], "the highest score; too few points for a peak")
    peak, height = fit
    aim = min(max(alive), max(min(alive), peak))
    top = snap(aim)
    known = _nearest(scores, top, max(_SAME, near))
    if known is None and len(scores) < most_points:
        return _probe(top, aim, "peak of the parabola through all points")
    best = max(alive, key=lambda x: round(height(x), TIE_DIGITS))  # of equal ones the lowest position
    return Settled(best, height(best), "highest on the parabola through all points")


def _probe(position: float, aim: float, reason: str) -> Probe:
    return Probe(position, reason, None if abs(position - aim) <= _SAME else aim)


def _parabola(alive: Mapping[float, float]) -> tuple[float, Callable[[float], float]] | None:
    """Peak and height of the least-squares parabola; None through fewer than three points or if it opens upwards."""
    if len(alive) < PEAK_POINTS:
        return None
    positions = np.array(list(alive))
    middle = float(positions.mean())
    heights = np.array(list(alive.values()))
    bend, slope, level = (float(c) for c in np.polyfit(positions - middle, heights, 2))
    if not -bend * float(np.ptp(positions)) ** 2 > ROUNDING * (1 + float(np.abs(heights).max())):
        return None
    return middle - slope / (2 * bend), lambda x: level + slope * (x - middle) + bend * (x - middle) ** 2


def _nearest(scores: Mapping[float, float], position: float, reach: float) -> float | None:
    """The measured position next to this one, if it is within reach."""
    near = min(scores, key=lambda x: abs(x - position), default=None)
    return near if near is not None and abs(near - position) <= reach else None
