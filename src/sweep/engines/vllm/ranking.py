"""`compare`: whether one way of measuring candidates ranks them as another does, and what believing it would cost.

Pure. For the question whether the short probe may stand in for a full trial.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Generic, TypeVar

Point = TypeVar("Point", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Point]):
    """Over the points that both have measured. Correlations are in [-1, 1], NaN where either ranks nothing.

    `lost_share` is the share of the full measure's best rate that is given up by taking the short one's best point;
    0 if both name the same one.
    """

    points: int
    spearman: float
    kendall: float
    short_best: Point | None
    full_best: Point | None
    lost_share: float


def compare(short: Mapping[Point, float], full: Mapping[Point, float]) -> Comparison[Point]:
    """The comparison of two measures of the same points, higher is better in both."""
    common = [p for p in short if p in full and math.isfinite(short[p]) and math.isfinite(full[p])]
    if not common:
        return Comparison(0, math.nan, math.nan, None, None, math.nan)
    ours, theirs = [short[p] for p in common], [full[p] for p in common]
    short_best, full_best = max(common, key=lambda p: short[p]), max(common, key=lambda p: full[p])
    best = full[full_best]
    lost = (best - full[short_best]) / best if best > 0 else math.nan
    return Comparison(len(common), spearman(ours, theirs), kendall(ours, theirs), short_best, full_best, lost)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's correlation of the ranks, ties sharing their mean rank."""
    return _pearson(ranks(a), ranks(b))


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau-b: pairs in the same order less pairs in opposite order, over the pairs that neither ties."""
    pairs = [(_sign(a[i] - a[j]), _sign(b[i] - b[j])) for i, j in combinations(range(len(a)), 2)]
    untied_a, untied_b = sum(x != 0 for x, _ in pairs), sum(y != 0 for _, y in pairs)
    scale = math.sqrt(untied_a * untied_b)
    return sum(x * y for x, y in pairs) / scale if scale else math.nan


def ranks(values: Sequence[float]) -> list[float]:
    """Place of each value from 1 for the smallest, equal values sharing their mean place."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def _pearson(a: Sequence[float], b: Sequence[float]) -> float:
    if len(a) < 2:
        return math.nan
    mean_a, mean_b = fmean(a), fmean(b)
    scale = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / scale if scale else math.nan


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
