"""`SURFACES`: the named tasks of a rehearsal; `best_settings`: what a perfect tuner would find on one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.engines.rehearsal.surface import Response, Surface

_PLAIN = Surface("separable")
_FLAT = Response(1.0, 2.0, 0.0)

SURFACES: dict[str, Surface] = {
    s.name: s
    for s in (
        _PLAIN,
        replace(_PLAIN, name="coupled", lr_follows_batch=0.5, kl_follows_lr=0.5),
        replace(_PLAIN, name="trap", mini_batch=Response(80.0, 3.0, 0.29), lr=Response(3.2e-6, 3.0, 0.18), trap=0.2),
        replace(_PLAIN, name="saturating", sigmoid=False, rise_steps=220.0),
        Surface("flat", _FLAT, _FLAT, _FLAT, _FLAT, _FLAT, update_seconds=0.0),
    )
}
"""separable: each knob acts alone. coupled: the best lr follows the mini-batch, the best KL coefficient the lr. trap: a
ridge that no single knob can climb, where staged search must lose. saturating: curves flatten within a trial.
flat: nothing matters, so whoever moves is wrong."""

RANGES: dict[str, tuple[float, float]] = {
    keys.MINI_BATCH: (64.0, 1024.0),
    keys.KL_COEF: (0.0005, 0.01),
    keys.MAX_BATCHED_TOKENS: (2048.0, 32768.0),
    keys.ACTOR_LR: (5e-7, 5e-6),
    keys.LAM: (0.95, 0.99),
}
"""Where a tuner may look. Source: S0 section 1.3; mini-batch a quarter to four times verl's default."""


@lru_cache(maxsize=32)
def best_settings(surface: Surface, steps: int) -> tuple[Overrides, float]:
    """The settings within the ranges with the highest true efficiency, and that efficiency."""
    names = tuple(RANGES)
    low = np.array([_to_line(n, RANGES[n][0]) for n in names])
    high = np.array([_to_line(n, RANGES[n][1]) for n in names])

    def loss(point: np.ndarray) -> float:
        return -surface.truth(_settings(names, np.clip(point, low, high))).efficiency(steps)

    from scipy.optimize import differential_evolution

    found = differential_evolution(loss, list(zip(low, high, strict=True)), seed=0, tol=1e-6, maxiter=80, popsize=8)
    return _settings(names, found.x), -float(found.fun)


def _settings(names: tuple[str, ...], point: np.ndarray) -> Overrides:
    return Overrides.of({n: _from_line(n, float(x)) for n, x in zip(names, point, strict=True)})


def _to_line(name: str, value: float) -> float:
    return value if name == keys.LAM else math.log(value)


def _from_line(name: str, value: float) -> float:
    return value if name == keys.LAM else math.exp(value)
