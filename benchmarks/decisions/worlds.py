"""`World`: one simulated task with its noise; methods run trials in it and pay for their steps.

Every world draws its own optimum, so that no method is lucky by where it starts: best values log-uniform over most of
S0's safe ranges, impacts as S0 gives them. Every knob's response has its own shape, from nearly a wedge to nearly a
plateau and up to twice as steep on one side, so that no method is lucky by the curve that it assumes. Kinds:
`separable`, `coupled`, `saturating`, `trap` (staged search must lose there), as in `sweep.engines.rehearsal.surfaces`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, simulate
from sweep.engines.rehearsal.surface import Response, Surface
from sweep.engines.rehearsal.surfaces import SURFACES, best_settings

KINDS = ("separable", "coupled", "saturating", "trap")
STEPS = 500
WARMUP = 5
BASE = Overrides.of(
    {
        keys.MINI_BATCH: 256,
        keys.TRAIN_BATCH: 1024,
        keys.KL_COEF: 0.001,
        keys.KL_IN_REWARD: True,
        keys.MAX_BATCHED_TOKENS: 8192,
        keys.MAX_SEQS: 256,
        keys.ACTOR_LR: 1e-6,
        keys.LAM: 1.0,
    }
)
"""verl's defaults, with the KL term on: where every method starts."""


@dataclass
class World:
    """A task, what was spent in it, and what is cached of it: the same trial never costs twice."""

    surface: Surface
    noise: Noise
    spent_steps: int = 0
    ended: dict[str, Outcome] = field(default_factory=dict)

    def run(self, settings: Overrides, seed: int, steps: int = STEPS) -> Outcome:
        """How the trial ended; its steps are paid for."""
        trial = Trial(BASE.merged(settings), seed, steps)
        if trial.id not in self.ended:
            self.ended[trial.id] = self._play(trial)
        return self.ended[trial.id]

    def quality(self, settings: Overrides) -> float:
        """True efficiency of the settings as a share of the best there is."""
        _, best = best_settings(self.surface, STEPS)
        return self.surface.truth(BASE.merged(settings)).efficiency(STEPS) / best

    def measured(self, curve: Curve, steps: int = STEPS) -> float:
        """What a user would log as objective: mean score gained so far per median second of a step."""
        gained = float(np.mean(curve.score[:steps])) - self.surface.start_score
        return gained / float(np.median(curve.step_seconds[WARMUP:steps]))

    def _play(self, trial: Trial) -> Outcome:
        result = simulate(self.surface, self.noise, trial)
        self.spent_steps += result.curve.last_step
        if result.error:
            return Failed(FailureClass.OOM_GPU, result.error, result.curve.last_step)
        if any(math.isnan(v) for v in result.curve.grad_norm):
            return Diverged(result.curve, "non-finite gradient norm")
        return Finished(result.curve)


def world(kind: str, cv: float, seed: int) -> World:
    """The world of that number: same kind and number, same optimum and same luck for every method."""
    rng = np.random.default_rng([KINDS.index(kind), seed])

    def drawn(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(math.log(low), math.log(high))))

    def bent(response: Response, best: float) -> Response:
        return replace(response, best=best, power=float(rng.uniform(1.3, 3.0)), skew=drawn(0.5, 2.0))

    plain = SURFACES[kind]
    mini, lr = drawn(110, 500), drawn(7e-7, 3e-6)
    if kind == "trap":
        lr = drawn(2e-6, 4e-6)
        mini = 256.0 * 1e-6 / lr
    surface = replace(
        plain,
        name=f"{kind}-{seed}",
        mini_batch=bent(plain.mini_batch, mini),
        kl_coef=bent(plain.kl_coef, drawn(0.0008, 0.006)),
        token_budget=bent(plain.token_budget, drawn(4096, 32768)),
        lr=bent(plain.lr, lr),
        lam=bent(plain.lam, drawn(0.012, 0.045)),
    )
    return World(surface, Noise(cv=cv, seed=seed))
