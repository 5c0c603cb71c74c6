"""`nominal_levels`: the significance level of each look, so that all looks together err at the stated rate.

Group-sequential test with an error-spending function (Lan and DeMets 1983); looks come after 2, 3, ..., `looks` pairs
of runs. The boundaries are exact for normal increments; with few seeds the levels are applied to Student's t
(Jennison and Turnbull 2000, section 4.4), whose error rate the benchmark measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

FIRST_LOOK = 2
"""Pairs of runs before the first test: one pair shows no spread."""

SPENDING_POWER = 1.5
"""Share of the error spent after a share t of the pairs: t to this power (Kim and DeMets 1987). Ours, by simulation."""

_GRID = 1201
_REACH = 8.0


@lru_cache(maxsize=64)
def nominal_levels(looks: int, alpha: float, power: float = SPENDING_POWER) -> tuple[float, ...]:
    """Two-sided level at each look after FIRST_LOOK, ..., `looks` pairs; (alpha,) if there is only one look."""
    levels: list[float] = []
    spent = 0.0
    grid, density = _start(FIRST_LOOK)
    for pairs in range(FIRST_LOOK, max(looks, FIRST_LOOK) + 1):
        if pairs > FIRST_LOOK:
            grid, density = _step(grid, density, pairs)
        target = alpha * (pairs / max(looks, FIRST_LOOK)) ** power
        bound = _bound(grid, density, target - spent)
        spent = target
        levels.append(math.erfc(bound / math.sqrt(pairs) / math.sqrt(2)))
        density = np.where(np.abs(grid) < bound, density, 0.0)
    return tuple(levels)


def level_at(pairs: int, looks: int, alpha: float) -> float:
    """The level of the look after so many pairs; 0 before the first, the last one's after the last."""
    levels = nominal_levels(looks, alpha)
    return 0.0 if pairs < FIRST_LOOK else levels[min(pairs - FIRST_LOOK, len(levels) - 1)]


def _start(pairs: int) -> tuple[Any, Any]:
    grid = np.linspace(-_REACH, _REACH, _GRID) * math.sqrt(pairs)
    return grid, np.exp(-(grid**2) / (2 * pairs)) / math.sqrt(2 * math.pi * pairs)


def _step(grid: Any, density: Any, pairs: int) -> tuple[Any, Any]:
    """Density of the sum after one more pair."""
    wider = np.linspace(-_REACH, _REACH, _GRID) * math.sqrt(pairs)
    kernel = np.exp(-((wider[:, None] - grid[None, :]) ** 2) / 2) / math.sqrt(2 * math.pi)
    return wider, kernel @ density * (grid[1] - grid[0])


def _bound(grid: Any, density: Any, error: float) -> float:
    """The sum beyond which, on both sides together, lies that much probability."""
    mass: Callable[[float], float] = lambda bound: _tail_mass(grid, density, bound)  # noqa: E731
    low, high = 0.0, float(grid[-1])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) > error else (low, middle)
    return (low + high) / 2


def _tail_mass(grid: Any, density: Any, bound: float) -> float:
    cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    inside = np.interp(bound, grid, cumulative) - np.interp(-bound, grid, cumulative)
    return float(cumulative[-1] - inside)
