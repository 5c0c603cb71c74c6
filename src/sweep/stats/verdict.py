"""`compare`: one of four verdicts on a ratio that is looked at after every further pair of seeds.

The stated error rate holds over all looks of one comparison together (`sweep.stats.spending`): whoever adds seeds
until something shows is still wrong at most so often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from sweep.stats.estimate import Interval, t_two_sided
from sweep.stats.spending import level_at

ALPHA = 0.05
"""Probability of calling equal arms better or worse, over all looks of a comparison."""

EQUIVALENCE_MARGIN = 0.05
"""Ratios this close to 1 are not worth telling apart. Source: S0 section 2.1 acts on 1.05 and 0.95."""


class Verdict(Enum):
    """What a comparison says of a candidate."""

    BETTER = "better"
    WORSE = "worse"
    INDISTINGUISHABLE = "indistinguishable"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict, the ratio with its interval, and the reason in words."""

    verdict: Verdict
    ratio: float
    low: float
    high: float
    reason: str


def compare(
    interval: Interval,
    *,
    looks: int,
    max_looks: int,
    alpha: float = ALPHA,
    margin: float = EQUIVALENCE_MARGIN,
) -> Comparison:
    """The verdict after `looks` of at most `max_looks` pairs of seeds.

    Better or worse: 1 lies outside the interval at the level that this look may spend. Indistinguishable: that
    interval lies inside the margin, or the last look has passed without a difference. Not enough data: no ratio, no
    measured spread, or a look before the last that shows neither.
    """
    verdict, reason = _judge(interval, looks, max_looks, alpha, margin)
    return Comparison(verdict, interval.value, interval.low, interval.high, reason)


def _judge(interval: Interval, looks: int, max_looks: int, alpha: float, margin: float) -> tuple[Verdict, str]:
    last = looks >= max_looks
    if not interval.known:
        return Verdict.NOT_ENOUGH_DATA, interval.reason or "no ratio exists"
    if interval.degrees < 1:
        return _unreplicated(looks, last)
    level = level_at(max(looks, 2), max(max_looks, 2), alpha)
    statistic = interval.statistic
    if math.isfinite(statistic) and t_two_sided(statistic, interval.degrees) < level:
        side = Verdict.BETTER if statistic > 0 else Verdict.WORSE
        return side, f"1 lies outside the {1 - level:.1%} interval of look {looks} of {max_looks}"
    low, high = interval.at(1 - level)
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return Verdict.INDISTINGUISHABLE, f"equal within {margin:.0%} at look {looks} of {max_looks}"
    if last:
        return Verdict.INDISTINGUISHABLE, f"{looks} seeds could not tell them apart"
    return Verdict.NOT_ENOUGH_DATA, f"look {looks} of {max_looks} shows neither a difference nor equality"


def _unreplicated(looks: int, last: bool) -> tuple[Verdict, str]:
    if last:
        return Verdict.INDISTINGUISHABLE, "one seed shows no spread, so no difference can be told from noise"
    return Verdict.NOT_ENOUGH_DATA, f"{looks} seed shows no spread between seeds"
