"""`level_at`: the significance level of each look, so that all looks at one comparison together err at the stated rate.

Group-sequential test with an error-spending function (Lan and DeMets 1983): a look after every pair of runs up to the
last allowed one. Which looks were really taken does not matter: a skipped look only leaves its share unspent. The
boundaries are exact for normal increments of known variance; with few seeds the same levels are applied to Student's t
(Jennison and Turnbull 2000, section 4.4), and `SPENT_SHARE` makes up for what that costs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

SPENDING_POWER = 3.0
"""Share of the error spent after a share t of the pairs: t to this power (Kim and DeMets 1987). Ours, by simulation at
8 pairs: 3 finds a true +10 % at a spread of 5 % in 82 %, 2 in 79 %, 1.5 in 78 %, at a mean of 6.1, 5.8, 5.7 pairs."""

SPENT_SHARE = 0.8
"""Share of the stated error rate that the levels spend. Ours: Student's t from 2 to 12 pairs errs up to 1.24 times as
often as its levels say; with this share equal arms part in at most 4.7 % of simulated comparisons, over all looks."""

_GRID = 1201
_REACH = 8.0


def level_at(pairs: int, max_pairs: int, alpha: float) -> float:
    """Two-sided level of the look after so many pairs; that of the last look afterwards, 0 before the first pair."""
    levels = nominal_levels(max(1, max_pairs), alpha * SPENT_SHARE)
    return 0.0 if pairs < 1 else levels[min(pairs, len(levels)) - 1]


@lru_cache(maxsize=64)
def nominal_levels(max_pairs: int, alpha: float, power: float = SPENDING_POWER) -> tuple[float, ...]:
    """Two-sided level at each look after 1, ..., `max_pairs` pairs, which together spend alpha."""
    levels: list[float] = []
    spent = 0.0
    sums, density = _first_sum()
    for pairs in range(1, max_pairs + 1):
        if pairs > 1:
            sums, density = _next_sum(sums, density, pairs)
        due = alpha * (pairs / max_pairs) ** power
        bound = _bound(sums, density, due - spent)
        spent = due
        levels.append(math.erfc(bound / math.sqrt(2 * pairs)))
        density = np.where(np.abs(sums) < bound, density, 0.0)
    return tuple(levels)


def _first_sum() -> tuple[Any, Any]:
    sums = np.linspace(-_REACH, _REACH, _GRID)
    return sums, np.exp(-(sums**2) / 2) / math.sqrt(2 * math.pi)


def _next_sum(sums: Any, density: Any, pairs: int) -> tuple[Any, Any]:
    """Density of the sum after one more pair, of those that were not stopped before."""
    wider = np.linspace(-_REACH, _REACH, _GRID) * math.sqrt(pairs)
    kernel = np.exp(-((wider[:, None] - sums[None, :]) ** 2) / 2) / math.sqrt(2 * math.pi)
    return wider, kernel @ density * (sums[1] - sums[0])


def _bound(sums: Any, density: Any, error: float) -> float:
    """The size beyond which, on both sides together, the sum has that much probability."""
    steps = (density[1:] + density[:-1]) / 2 * np.diff(sums)
    below = np.concatenate([[0.0], np.cumsum(steps)])
    sizes = sums[sums >= 0]
    outside = below[-1] - (np.interp(sizes, sums, below) - np.interp(-sizes, sums, below))
    return float(np.interp(-error, -outside, sizes))
