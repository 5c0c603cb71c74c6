"""`compare`: one of four verdicts on a ratio that is looked at again after every further pair of seeds.

The stated error rate holds over all looks of one comparison together (`sweep.stats.spending`): whoever adds seeds
until something shows is still wrong at most that often. Simulated rates: `benchmarks/bench_decisions.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from sweep.stats.estimate import Interval, t_quantile, t_two_sided
from sweep.stats.spending import level_at

ALPHA = 0.05
"""Probability of calling equal arms better or worse, over all looks of a comparison."""

EQUIVALENCE_MARGIN = 0.05
"""Ratios this close to 1 are not worth telling apart. Source: S0 section 2.1 acts on 1.05 and 0.95."""

DEFAULT_SEEDS = 9
"""Pairs of seeds a comparison may use. Ours: the fewest that find a true +10 % in 80 % of cases when runs spread by 5 %
between seeds besides the noise within them, without any help from pairing; most comparisons end after 4 to 6."""

REPORTED_LEVEL = 0.96
"""Nominal level of the printed interval. Ours: stopping at a chosen moment costs coverage, the floor under the spread
gives some back; at this level the interval at the verdict covers the truth in 95-97 % of simulated comparisons."""

HOPE = 1.0
"""Standard errors by which the truth may exceed the measured difference when asking whether more seeds can still
show one. Ours, by simulation: halves the seeds spent on equal arms and costs four points of power."""


class Verdict(Enum):
    """What a comparison says of a candidate."""

    BETTER = "better"
    WORSE = "worse"
    INDISTINGUISHABLE = "indistinguishable"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict, the ratio with its 95 % interval (NaN if there is no ratio), and the reason in words."""

    verdict: Verdict
    ratio: float
    low: float
    high: float
    reason: str


def compare(
    interval: Interval,
    *,
    looks: int,
    max_looks: int = DEFAULT_SEEDS,
    alpha: float = ALPHA,
    margin: float = EQUIVALENCE_MARGIN,
    hope: float = HOPE,
) -> Comparison:
    """The verdict after `looks` of at most `max_looks` pairs of seeds.

    Better or worse: 1 lies outside the interval at the level that this look may spend. Indistinguishable: that
    interval lies within the margin of 1, or the remaining looks are unlikely to show a difference, or none remain.
    Not enough data: no ratio, no measured spread, or a difference that further seeds may still show.
    """
    verdict, reason = _judge(interval, looks, max_looks, alpha, margin, hope)
    low, high = interval.at(REPORTED_LEVEL) if interval.known else (math.nan, math.nan)
    return Comparison(verdict, interval.value, low, high, reason)


def _judge(
    interval: Interval, looks: int, max_looks: int, alpha: float, margin: float, hope: float
) -> tuple[Verdict, str]:
    if not interval.known:
        return Verdict.NOT_ENOUGH_DATA, interval.reason or "no ratio exists"
    if interval.degrees < 1:
        return _without_spread(looks, max_looks)
    level = level_at(looks, max_looks, alpha)
    place = f"look {looks} of {max_looks}"
    if _apart(interval, level):
        side = Verdict.BETTER if interval.value > 1 else Verdict.WORSE
        return side, f"1 lies outside the {1 - level:.1%} interval at {place}"
    low, high = interval.at(1 - level)
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return Verdict.INDISTINGUISHABLE, f"equal within {margin:.0%} at {place}"
    if looks >= max_looks:
        return Verdict.INDISTINGUISHABLE, f"{looks} seeds could not tell them apart"
    if not _may_still_part(interval, looks, max_looks, alpha, hope):
        return Verdict.INDISTINGUISHABLE, f"{max_looks - looks} more seeds are unlikely to tell them apart at {place}"
    return Verdict.NOT_ENOUGH_DATA, f"{place} shows neither a difference nor equality"


def _without_spread(looks: int, max_looks: int) -> tuple[Verdict, str]:
    if looks >= max_looks:
        return Verdict.INDISTINGUISHABLE, "one seed shows no spread, so no difference can be told from noise"
    return Verdict.NOT_ENOUGH_DATA, "one seed shows no spread between seeds"


def _apart(interval: Interval, level: float) -> bool:
    if interval.standard_error == 0:
        return interval.value != 1
    return t_two_sided(interval.statistic, interval.degrees) < level


def _may_still_part(interval: Interval, looks: int, max_looks: int, alpha: float, hope: float) -> bool:
    """Whether the last look would show a difference if the truth lay `hope` standard errors further from 1."""
    degrees = max(interval.degrees, max_looks - 1)
    last = level_at(max_looks, max_looks, alpha)
    needed = t_quantile(1 - last / 2, degrees) * math.sqrt(looks / max_looks)
    return abs(interval.statistic) + hope >= needed
