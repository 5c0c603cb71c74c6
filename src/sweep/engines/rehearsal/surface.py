"""`Surface`: what five knobs really do to a simulated training; `Truth`: what that means for one configuration.

The surface is made, not measured: depths are the impacts that S0 section 1.3 gives its knobs, curve, noise and times
are fitted to logs of real runs (`sweep.engines.rehearsal.curves`). No verl is run; nothing here is evidence about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sweep.core.overrides import Overrides
from sweep.engines.rehearsal import controller
from sweep.engines.rehearsal.knobs import DEFAULT_KNOBS, Knobs, base_knobs, knobs_of

SHORTEST_MEMORY = 0.006
"""1 - lam below this, verl's default of lam 1 among it, is as bad as this. Ours."""

USUAL_STEPS = 500
"""Steps of a trial that the curves are made for. Source: S0 section 2."""

MOST_LOSS = 2.5
"""Largest loss of log speed by one knob: a knob far off slows training to a twelfth, but does not stop it."""


@dataclass(frozen=True, slots=True)
class Response:
    """How a knob bends learning speed: best value, the factor away from it at which `depth` of the speed is lost.

    The loss of log speed grows with that `power` of the distance in logarithms, and `skew` times as fast above the best
    value as below it; 2 and 1 make a parabola.
    """

    best: float
    factor: float
    depth: float
    power: float = 2.0
    skew: float = 1.0

    def distance(self, value: float, shift: float = 0.0) -> float:
        """Signed distance from the best value in units of the factor, the best value moved by e^shift."""
        return (math.log(max(value, 1e-12) / self.best) - shift) / math.log(self.factor)

    def loss(self, distance: float) -> float:
        """Log speed lost at that distance."""
        side = self.skew if distance > 0 else 1.0
        return min(MOST_LOSS, -math.log(1 - self.depth) * side * math.pow(abs(distance), self.power))


@dataclass(frozen=True, slots=True)
class Surface:
    """The truth of a simulated task. Seconds are those of one step at the best settings, by part.

    `lr_follows_batch`: exponent by which the best learning rate grows with the mini-batch. `kl_follows_lr`: exponent
    by which the best KL coefficient grows with the learning rate. `trap`: share of the speed lost off the ridge on
    which mini-batch and learning rate must move together; one knob at a time cannot follow it.
    `rise_steps`: steps to half of the possible gain at full speed; `sigmoid`: the curve starts flat.
    """

    name: str
    mini_batch: Response = Response(180.0, 2.0, 0.29)
    kl_coef: Response = Response(0.002, 4.5, 0.26)
    token_budget: Response = Response(16384.0, 4.0, 0.22)
    lr: Response = Response(1.6e-6, 2.5, 0.18)
    lam: Response = Response(0.03, 5.0, 0.15)
    lr_follows_batch: float = 0.0
    kl_follows_lr: float = 0.0
    trap: float = 0.0
    start_score: float = 0.11
    top_score: float = 0.75
    rise_steps: float = 280.0
    sigmoid: bool = True
    noise_batch: float = 220.0
    rollout_seconds: float = 4.0
    update_seconds: float = 2.5
    other_seconds: float = 1.5
    oom_tokens: float = 60_000.0
    nan_lr: float = 6e-6
    gpu_gib: float = 80.0

    base: Knobs = DEFAULT_KNOBS

    def around(self, base: Overrides, steps: int) -> Surface:
        """The same task seen from another configuration and with trials of that many steps.

        Best values lie as far from the base's as this surface's lie from verl's defaults, and the curve rises as far
        in a trial as this one's in 500 steps, so that every model preset can be rehearsed.

        Raises:
            ConfigError: for a base that is no training.
        """
        return replace(self, base=base_knobs(base), rise_steps=self.rise_steps * steps / USUAL_STEPS)

    def knobs(self, settings: Overrides) -> Knobs:
        """The settings' knobs in the units of this surface."""
        return knobs_of(settings).relative_to(self.base)

    def truth(self, settings: Overrides) -> Truth:
        """What the settings really lead to; settings that no knob names change nothing."""
        return _truth(self, self.knobs(settings))


@dataclass(frozen=True, slots=True)
class Truth:
    """Noise-free consequences of one configuration. `out_of_memory` and `diverges` trials have no score."""

    speed: float
    rollout_seconds: float
    step_seconds: float
    kl_nats: float
    gradient_norm: float
    free_gib: float
    out_of_memory: bool
    diverges: bool
    surface: Surface

    def scores(self, at_steps: Any) -> Any:
        """Mean raw score after so many steps, for an array of step numbers."""
        s = self.surface
        return s.start_score + (s.top_score - s.start_score) * _progress(self.speed * at_steps / s.rise_steps, s)

    def efficiency(self, steps: int) -> float:
        """Mean height of the score above its start over that many steps, per second of a step; 0 if the trial dies."""
        if self.out_of_memory or self.diverges:
            return 0.0
        heights = self.scores((np.arange(_POINTS) + 0.5) * steps / _POINTS) - self.surface.start_score
        return float(heights.mean()) / self.step_seconds


def _truth(surface: Surface, knobs: Knobs) -> Truth:
    coef = controller.settled_coefficient(knobs)
    batch = surface.mini_batch.distance(knobs.mini_batch)
    lr = surface.lr.distance(knobs.lr, surface.lr_follows_batch * math.log(knobs.mini_batch / surface.mini_batch.best))
    kl = surface.kl_coef.distance(coef, surface.kl_follows_lr * math.log(knobs.lr / surface.lr.best))
    lam = surface.lam.distance(max(SHORTEST_MEMORY, 1 - knobs.lam))
    loss = surface.mini_batch.loss(batch) + surface.lr.loss(lr) + surface.kl_coef.loss(kl) + surface.lam.loss(lam)
    loss += _off_the_ridge(surface, knobs)
    budget = surface.token_budget.distance(knobs.token_budget)
    share = knobs.train_batch / DEFAULT_KNOBS.train_batch
    rollout = surface.rollout_seconds * math.exp(surface.token_budget.loss(budget)) * share
    updates = surface.update_seconds * (0.6 + 0.4 * surface.mini_batch.best / knobs.mini_batch) * share
    return Truth(
        speed=math.exp(-loss) * share,
        rollout_seconds=rollout,
        step_seconds=rollout + updates + surface.other_seconds,
        kl_nats=controller.kl_nats(coef, knobs.lr),
        gradient_norm=0.4 * math.sqrt(1 + surface.noise_batch / knobs.mini_batch),
        free_gib=surface.gpu_gib * (0.25 - 0.19 * knobs.token_budget / surface.oom_tokens),
        out_of_memory=knobs.token_budget > surface.oom_tokens,
        diverges=knobs.lr > surface.nan_lr,
        surface=surface,
    )


def _off_the_ridge(surface: Surface, knobs: Knobs) -> float:
    """Log speed lost between the ridge, where lr grows as the mini-batch shrinks, and the configuration."""
    if not surface.trap:
        return 0.0
    across = math.log(knobs.lr / surface.lr.best) + math.log(knobs.mini_batch / surface.mini_batch.best)
    return -math.log(1 - surface.trap) * min(9.0, (across / RIDGE_WIDTH) ** 2)


def _progress(rise: Any, surface: Surface) -> Any:
    """Share of the possible gain after `rise` half-lives: a sigmoid as in the logged curves, or a saturation."""
    if not surface.sigmoid:
        return 1 - 0.5**rise
    low = 1 / (1 + math.exp(SIGMOID_STEEPNESS))
    return (1 / (1 + np.exp(-SIGMOID_STEEPNESS * (rise - 1))) - low) / (1 - low)


RIDGE_WIDTH = 0.12
"""Distance from the ridge, in log of the product of the two knobs, at which the trap's share of speed is lost."""

_POINTS = 64

SIGMOID_STEEPNESS = 3.4
"""Fitted to four seeds of a real run, 0.11 to 0.49 over 100 steps with the middle near step 50."""
