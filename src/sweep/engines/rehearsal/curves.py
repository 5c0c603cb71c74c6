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
from sweep.engines.rehearsal.knobs import Knobs, knobs_of
from sweep.engines.rehearsal.surface import Surface, Truth

RESPONSE_TOKENS = 101.0
SAMPLE_TOKENS = 239.0
"""Tokens of a response, and of a prompt with its response. Source: S1 section 2.2, means of GSM8K."""

KL_STEPS = 40.0
"""Steps in which KL comes within 1/e of where it settles. Ours."""

OOM_MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.25 GiB. GPU 0 has a total capacity of {:.2f} GiB "
    "of which 1.02 GiB is free"
)
"""What torch writes, so that the doctor is rehearsed too."""

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
    series = {name: tuple(columns[name].tolist()) for name in METRICS}
    curve = Curve(steps=tuple(range(1, steps + 1)), **series)
    return Simulated(curve, OOM_MESSAGE.format(surface.gpu_gib) if truth.out_of_memory else "")


class _Draw:
    """The trial's random numbers: some shared by all arms with its seed, some its own."""

    def __init__(self, noise: Noise, trial: Trial, steps: int) -> None:
        self._common = np.random.default_rng([noise.seed, trial.seed])
        self._own = np.random.default_rng([noise.seed, trial.seed, int(trial.id, 16)])
        self._shared, self.steps, self.at = noise.shared, steps, np.arange(1, steps + 1)

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
    """Every series of the trial as if it reached its last step, shape (steps,)."""
    logged, knobs = knobs_of(trial.overrides), surface.knobs(trial.overrides)
    spread = math.sqrt(math.log1p(noise.cv**2))
    luck = math.exp(spread * math.sqrt(1 - noise.time_share) * draw.paired())
    pace = math.exp(spread * math.sqrt(noise.time_share) * draw.own())
    score = _scores(noise, truth, trial.steps, luck, draw)
    coef = _coefficient(knobs, draw.steps)
    kl = _divergence(coef, knobs.lr, draw)
    logged_coef = coef * (logged.kl_coef / knobs.kl_coef if knobs.kl_coef else 1.0)
    return {
        "score": score,
        "reward": score - logged_coef * kl * RESPONSE_TOKENS,
        "kl_nats": kl,
        "kl_coef": logged_coef,
        "lr": np.full(draw.steps, logged.lr),
        **_health(truth, draw),
        **_times(noise, truth, pace, logged.train_batch * SAMPLE_TOKENS, draw),
        "peak_gib": np.full(draw.steps, surface.gpu_gib - truth.free_gib),
        "free_gib": np.full(draw.steps, truth.free_gib),
        "preemptions": np.zeros(draw.steps),
    }


def _scores(noise: Noise, truth: Truth, trial_steps: int, luck: float, draw: _Draw) -> Any:
    """The true curve, stretched by the seed's luck, with the noise of a batch."""
    start = truth.surface.start_score
    gain = float(truth.scores(np.array(trial_steps))) - start
    wobble = draw.carried(draw.paired(draw.steps), noise.score_carry)
    return start + luck * (truth.scores(draw.at) - start) + noise.score_noise * gain * wobble


def _divergence(coef: Any, lr: float, draw: _Draw) -> Any:
    """KL per token to the reference policy."""
    settled = controller.kl_nats(1.0, lr) * np.maximum(coef, controller.SMALLEST_COEF) ** -controller.KL_ANSWER
    return settled * (1 - np.exp(-draw.at / KL_STEPS)) * np.exp(0.1 * draw.carried(draw.own(draw.steps), 0.5))


def _health(truth: Truth, draw: _Draw) -> dict[str, Any]:
    """What a healthy training logs besides: nothing in it depends on the seed's luck."""
    steps = draw.steps
    return {
        "update_kl_nats": 0.0005 * np.exp(0.3 * draw.own(steps)),
        "grad_norm": truth.gradient_norm * np.exp(0.1 * draw.own(steps)),
        "critic_grad_norm": 2 * truth.gradient_norm * np.exp(0.1 * draw.own(steps)),
        "entropy_nats": 1.2 * np.exp(-truth.speed * draw.at / 4000) + 0.02 * draw.own(steps),
        "vf_loss": 0.05 + 0.1 * np.exp(-draw.at / 30) * np.exp(0.1 * draw.own(steps)),
        "response_tokens": RESPONSE_TOKENS + 5 * draw.own(steps),
    }


def _times(noise: Noise, truth: Truth, pace: float, tokens: float, draw: _Draw) -> dict[str, Any]:
    """Step and rollout seconds with the run's pace and each step's hiccups, and the throughputs that follow."""
    hiccup = pace * np.exp(noise.time_noise * draw.carried(draw.own(draw.steps), noise.time_carry))
    seconds, rollout = truth.step_seconds * hiccup, truth.rollout_seconds * hiccup
    seconds[:1] *= noise.first_step_factor
    return {
        "step_seconds": seconds,
        "gen_seconds": rollout,
        "total_tokens": np.full(draw.steps, tokens),
        "tokens_per_s_per_gpu": tokens / seconds,
        "rollout_tokens_per_s": tokens / rollout,
    }


def _coefficient(knobs: Knobs, steps: int) -> Any:
    """The KL coefficient at every step, moved by the controller if one is on."""
    interval = int(knobs.band.band_interval) if knobs.band else steps
    return np.repeat(controller.coefficients(knobs, steps // interval + 1), interval)[:steps]


def _break_off(columns: dict[str, Any], truth: Truth, steps: int) -> None:
    """From a third of the trial on the gradient explodes, then is NaN, and the score falls back to its start."""
    at = max(1, steps // 3)
    columns["grad_norm"][at : at + 5] *= 100
    columns["grad_norm"][at + 5 :] = math.nan
    columns["score"][at:] = truth.surface.start_score
    columns["kl_nats"][at:] *= 10
