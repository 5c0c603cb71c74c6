"""`simulate`: the rows that a simulated trial logs, with the noise of real runs; the same trial logs the same rows.

Fitted to logs of verl 0.9.1: scores around their trend deviate by 5 % of the gain, autocorrelated at 0.2; step times by
14 %, autocorrelated at 0.35, the first step several times longer; between seeds the step time varies by 4.4 %, the
gain by 2-4 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.core.curve import METRICS, Curve
from sweep.core.trial import Trial
from sweep.engines.rehearsal import controller
from sweep.engines.rehearsal.knobs import knobs_of
from sweep.engines.rehearsal.surface import Surface, Truth

OOM_STEP = 2
"""Steps logged before a token budget that does not fit runs out of memory."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much simulated trials vary.

    `cv`: spread between seeds of one run's efficiency, gain and step time together; `time_share`: part of that
    variance that is time. `shared`: part of the gain's noise that arms with one seed have in common. `score_noise`:
    deviation of one step's score as a share of the whole gain. `seed` makes another, independent world.
    """

    cv: float = 0.05
    time_share: float = 0.7
    shared: float = 0.25
    score_noise: float = 0.05
    score_carry: float = 0.2
    time_noise: float = 0.14
    time_carry: float = 0.35
    first_step_factor: float = 5.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Simulated:
    """A trial's curve up to its end and the error it died of, empty if it reached its last step."""

    curve: Curve
    error: str = ""


def simulate(surface: Surface, noise: Noise, trial: Trial) -> Simulated:
    """What the trial logs."""
    truth = surface.truth(trial.overrides)
    steps = min(trial.steps, OOM_STEP) if truth.out_of_memory else trial.steps
    draw = _Draw(noise, trial, steps)
    columns = _columns(surface, noise, truth, trial, draw)
    if truth.diverges:
        _break_off(columns, truth, steps)
    blank = np.full(steps, math.nan)
    series = {name: tuple(columns.get(name, blank).tolist()) for name in METRICS}
    curve = Curve(steps=tuple(range(1, steps + 1)), **series)
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.25 GiB. GPU 0 has a total capacity of "
        f"{surface.gpu_gib:.2f} GiB of which 1.02 GiB is free"
        if truth.out_of_memory
        else ""
    )
    return Simulated(curve, error)


class _Draw:
    """The trial's random numbers: some shared by all arms with its seed, some its own."""

    def __init__(self, noise: Noise, trial: Trial, steps: int) -> None:
        self._common = np.random.default_rng([noise.seed, trial.seed])
        self._own = np.random.default_rng([noise.seed, trial.seed, int(trial.id, 16)])
        self._shared, self._steps = noise.shared, steps

    def paired(self, size: int | None = None) -> Any:
        """Standard normal, with the shared part in common."""
        common, own = self._common.normal(size=size), self._own.normal(size=size)
        return math.sqrt(self._shared) * common + math.sqrt(1 - self._shared) * own

    def own(self, size: int | None = None) -> Any:
        """Standard normal, independent of every other trial."""
        return self._own.normal(size=size)

    def carried(self, white: Any, carry: float) -> Any:
        """White noise of shape (steps,) made first-order autocorrelated, with its variance kept."""
        from scipy.signal import lfilter

        start = white[:1] / math.sqrt(1 - carry**2)
        scaled = np.concatenate([start, white[1:]]) * math.sqrt(1 - carry**2)
        return lfilter([1.0], [1.0, -carry], scaled)


def _columns(surface: Surface, noise: Noise, truth: Truth, trial: Trial, draw: _Draw) -> dict[str, Any]:
    steps = len(range(min(trial.steps, OOM_STEP))) if truth.out_of_memory else trial.steps
    at = np.arange(1, steps + 1)
    knobs = knobs_of(trial.overrides)
    spread = math.sqrt(math.log1p(noise.cv**2))
    luck = math.exp(spread * math.sqrt(1 - noise.time_share) * draw.paired())
    pace = math.exp(spread * math.sqrt(noise.time_share) * draw.own())
    trend = truth.scores(at)
    gain = float(truth.scores(np.array(trial.steps))) - surface.start_score
    wobble = draw.carried(draw.paired(steps), noise.score_carry)
    score = surface.start_score + luck * (trend - surface.start_score) + noise.score_noise * gain * wobble
    hiccup = np.exp(noise.time_noise * draw.carried(draw.own(steps), noise.time_carry))
    seconds = truth.step_seconds * pace * hiccup
    seconds[:1] *= noise.first_step_factor
    gen = truth.rollout_seconds * pace * hiccup
    coef = _coefficient(knobs, steps)
    kl = (
        controller.kl_nats(1.0, knobs.lr)
        * (1.0 / coef) ** 0.6
        * (1 - np.exp(-at / 40))
        * np.exp(0.1 * draw.carried(draw.own(steps), 0.5))
    )
    tokens = np.full(steps, 1024 * knobs.batch_share * 400.0)
    return {
        "score": score,
        "reward": score - coef * kl,
        "kl_nats": kl,
        "kl_coef": coef,
        "update_kl_nats": 0.0005 * np.exp(0.3 * draw.own(steps)),
        "grad_norm": truth.gradient_norm * np.exp(0.1 * draw.own(steps)),
        "critic_grad_norm": 2 * truth.gradient_norm * np.exp(0.1 * draw.own(steps)),
        "lr": np.full(steps, knobs.lr),
        "entropy_nats": 1.2 * np.exp(-truth.speed * at / 4000) + 0.02 * draw.own(steps),
        "vf_loss": 0.05 + 0.1 * np.exp(-at / 30) * np.exp(0.1 * draw.own(steps)),
        "step_seconds": seconds,
        "gen_seconds": gen,
        "response_tokens": 240 + 5 * draw.own(steps),
        "total_tokens": tokens,
        "tokens_per_s_per_gpu": tokens / seconds / 8,
        "peak_gib": np.full(steps, surface.gpu_gib - truth.free_gib),
        "free_gib": np.full(steps, truth.free_gib),
        "preemptions": np.zeros(steps),
        "rollout_tokens_per_s": tokens / gen,
    }


def _coefficient(knobs: Any, steps: int) -> Any:
    """The KL coefficient at every step, moved by the controller if one is on."""
    values = controller.coefficients(knobs, steps // knobs.band_interval + 1)
    return np.repeat(values, knobs.band_interval)[:steps]


def _break_off(columns: dict[str, Any], truth: Truth, steps: int) -> None:
    """From a third of the trial on the gradient explodes, then is NaN, and the score falls back to its start."""
    at = max(1, steps // 3)
    columns["grad_norm"][at : at + 5] *= 100
    columns["grad_norm"][at + 5 :] = math.nan
    columns["score"][at:] = truth.surface.start_score
    columns["kl_nats"][at:] *= 10
