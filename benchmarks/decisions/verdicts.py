"""`verdict_cells`: error rates of single comparisons: two arms, a seed added to both until there is a verdict.

Arms are simulated curves of 500 steps through the whole chain that a stage uses: gain, step time, interval, verdict.
Noise between arms is independent, the worst case: nothing that pairing by seed could take out. `shared` cells show
what pairing gains. The article's literal rule reads the first pair of the same runs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from benchmarks.decisions.shares import Share
from sweep.core.curve import Curve
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, simulate
from sweep.engines.rehearsal.surface import Surface
from sweep.engines.rehearsal.surfaces import SURFACES
from sweep.stats.efficiency import efficiency
from sweep.stats.gain import fitted_gain
from sweep.stats.timing import step_time
from sweep.stats.verdict import DEFAULT_SEEDS, Verdict, compare

CVS = (0.03, 0.05, 0.10, 0.20)
STEPS = 500
WARMUP = 5
FIXED = 3
"""Pairs behind the interval whose coverage is counted without any stopping."""

ARM = {"candidate": Overrides.of({"arm": 1}), "base": Overrides.of({"arm": 0})}


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: spread between seeds, true effect, shared part of the noise, and what came out."""

    cv: float
    effect: float
    shared: float
    better: Share
    worse: Share
    covered: Share
    fixed_covered: Share
    article_moved: Share
    mean_seeds: float

    def to_json(self) -> dict[str, object]:
        shares = ("better", "worse", "covered", "fixed_covered", "article_moved")
        return {
            "cv": self.cv,
            "true_effect": self.effect,
            "shared_noise": self.shared,
            "mean_seeds": round(self.mean_seeds, 2),
            **{name: getattr(self, name).to_json() for name in shares},
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """One comparison."""

    verdict: Verdict
    covered: bool
    fixed_covered: bool
    article_moved: bool
    seeds: int

    def to_json(self) -> list[Any]:
        return [self.verdict.value, self.covered, self.fixed_covered, self.article_moved, self.seeds]

    @classmethod
    def from_json(cls, content: list[Any]) -> Seen:
        return cls(Verdict(content[0]), *content[1:])


def verdict_cells(campaigns: int, first: int = 0) -> list[tuple[tuple[float, float, float], list[Seen]]]:
    """Every cell's comparisons, numbered from `first`; cells are built by `cell` from all workers' lists."""
    effects = [(cv, effect, 0.0) for cv, effect in itertools.product(CVS, (0.0, 0.10))]
    effects += [(0.05, -0.25, 0.0), (0.05, 0.40, 0.0), (0.05, 0.0, 0.5), (0.05, 0.10, 0.5)]
    return [(key, [_compare(*key, seed) for seed in range(first, first + campaigns)]) for key in effects]


def cell(key: tuple[float, float, float], seen: list[Seen]) -> Cell:
    """The counted comparisons of a cell."""
    return Cell(
        *key,
        better=Share.of(s.verdict is Verdict.BETTER for s in seen),
        worse=Share.of(s.verdict is Verdict.WORSE for s in seen),
        covered=Share.of(s.covered for s in seen),
        fixed_covered=Share.of(s.fixed_covered for s in seen),
        article_moved=Share.of(s.article_moved for s in seen),
        mean_seeds=sum(s.seeds for s in seen) / len(seen),
    )


def _compare(cv: float, effect: float, shared: float, seed: int) -> Seen:
    noise = Noise(cv=cv, shared=shared, seed=seed)
    candidates = [_run("candidate", effect, noise, s) for s in range(FIXED)]
    bases = [_run("base", 0.0, noise, s) for s in range(FIXED)]
    fixed = efficiency(candidates, bases, warmup_steps=WARMUP)
    for pairs in range(1, DEFAULT_SEEDS + 1):
        if pairs > FIXED:
            candidates.append(_run("candidate", effect, noise, pairs - 1))
            bases.append(_run("base", 0.0, noise, pairs - 1))
        result = compare(efficiency(candidates[:pairs], bases[:pairs], warmup_steps=WARMUP), looks=pairs)
        if result.verdict is not Verdict.NOT_ENOUGH_DATA:
            break
    return Seen(
        result.verdict,
        covered=result.low <= 1 + effect <= result.high,
        fixed_covered=fixed.low <= 1 + effect <= fixed.high,
        article_moved=not 0.95 <= _article(candidates[0], bases[0]) <= 1.05,
        seeds=pairs,
    )


def _run(arm: str, effect: float, noise: Noise, seed: int) -> Curve:
    return simulate(_surface(effect), noise, Trial(ARM[arm], seed, STEPS)).curve


@lru_cache(maxsize=16)
def _surface(effect: float) -> Surface:
    """A surface on which nothing matters and every run gains more by the effect, in the same time."""
    flat = SURFACES["flat"]
    return replace(flat, top_score=flat.start_score + (1 + effect) * (flat.top_score - flat.start_score))


def _article(candidate: Curve, base: Curve) -> float:
    gains = [fitted_gain(c.score).value / step_time(c.step_seconds, 0).value for c in (candidate, base)]
    return gains[0] / gains[1]
