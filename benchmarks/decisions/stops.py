"""`stop_cells`: how often a running trial is stopped for a certain loss, rightly and wrongly, and what that saves.

Known before: the baseline and two other arms as good as it, four seeds each. Then a candidate runs its first trial.
`late` candidates are 10 % better over the whole trial but slower at first: what an early stop cannot foresee.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.decisions.shares import Share
from benchmarks.decisions.verdicts import STEPS, WARMUP
from sweep.core.curve import Curve
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, simulate
from sweep.engines.rehearsal.surface import Surface
from sweep.engines.rehearsal.surfaces import SURFACES
from sweep.stats.early import CHECKPOINTS, certainly_worse
from sweep.stats.efficiency import pooled_variance

EFFECTS: tuple[float | str, ...] = (0.0, -0.15, -0.25, -0.40, "late")
SEEDS = 4


@dataclass(frozen=True, slots=True)
class StopCell:
    """How many trials were stopped and the mean share of their steps that was still run."""

    cv: float
    effect: float | str
    stopped: Share
    steps_run: float

    def to_json(self) -> dict[str, object]:
        return {
            "cv": self.cv,
            "true_effect": self.effect,
            "stopped": self.stopped.to_json(),
            "steps_run": round(self.steps_run, 3),
        }


def stop_cells(campaigns: int, first: int = 0) -> list[tuple[tuple[float, float | str], list[float]]]:
    """For every cell the share of its steps that each trial ran."""
    keys = [(cv, effect) for cv in (0.05, 0.10) for effect in EFFECTS]
    return [(key, [_steps_run(*key, seed) for seed in range(first, first + campaigns)]) for key in keys]


def stop_cell(key: tuple[float, float | str], shares: list[float]) -> StopCell:
    """The counted trials of a cell."""
    return StopCell(*key, Share.of(s < 1 for s in shares), sum(shares) / len(shares))


def _steps_run(cv: float, effect: float | str, seed: int) -> float:
    noise = Noise(cv=cv, shared=0.0, seed=seed)
    flat = SURFACES["saturating"]
    arms = [[_run(flat, f"known {arm}", noise, s) for s in range(SEEDS)] for arm in range(3)]
    spread = pooled_variance(arms, warmup_steps=WARMUP)
    running = _run(_candidate(flat, effect), "candidate", noise, 0)
    for share in CHECKPOINTS:
        seen = _part(running, round(share * STEPS))
        if certainly_worse(seen, arms[0], budget_steps=STEPS, warmup_steps=WARMUP, pooled_variance=spread):
            return share
    return 1.0


def _candidate(flat: Surface, effect: float | str) -> Surface:
    if isinstance(effect, str):
        late = replace(flat, sigmoid=True)
        here, there = (s.truth(Overrides()).efficiency(STEPS) for s in (flat, late))
        return _taller(late, 1.10 * here / there)
    return _taller(flat, 1 + effect)


def _taller(surface: Surface, factor: float) -> Surface:
    return replace(surface, top_score=surface.start_score + factor * (surface.top_score - surface.start_score))


def _run(surface: Surface, arm: str, noise: Noise, seed: int) -> Curve:
    return simulate(surface, noise, Trial(Overrides.of({"arm": arm}), seed, STEPS)).curve


def _part(curve: Curve, steps: int) -> Curve:
    return Curve(steps=curve.steps[:steps], score=curve.score[:steps], step_seconds=curve.step_seconds[:steps])
