"""`remarks`: what a stage's trials say beside its score: reward noise, smoothness, gradient noise. Never decided on.

Each estimator is named in `sweep.stats.noise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from sweep.core import verl_keys as keys
from sweep.core.progress import Progress
from sweep.core.stage import Stage
from sweep.stages.arms import Measured
from sweep.stages.batch_lattice import batch_of
from sweep.stats.noise import gradient_noise_scale, hidden_oscillation, reward_noise, roughness


def remarks(
    stage: Stage, progress: Progress, base: Measured, best: Measured, values: Sequence[Measured]
) -> tuple[str, ...]:
    """Sentences for the winner's notes; `values` are all arms that were measured."""
    searched = {knob.key for knob in stage.knobs}
    found: list[str] = []
    if keys.LAM in searched:
        found.extend(_noise(best))
    if keys.ACTOR_LR in searched:
        found.extend(_smoothness(base, "baseline"))
        found.extend(_smoothness(best, "winner"))
    if keys.MINI_BATCH in searched:
        found.extend(_gradient_noise(stage, progress, [base, *values]))
    return tuple(dict.fromkeys(found))


def unsteady(best: Measured) -> Iterator[str]:
    """Where a learning rate that was walked first still makes the reward swing: S0 goes on to lam once it is smooth."""
    period = hidden_oscillation(best.finished[0].curve.score) if best.finished else None
    if period is not None and period.found:
        yield (
            f"the reward still swings every {period.period_steps:.0f} steps by {period.amplitude:.3g} at the learning "
            f"rate that {keys.LAM} was walked with: S0 section 2.4 tunes it until the reward is smooth; lower it and "
            "run the stage again"
        )


def _noise(best: Measured) -> Iterator[str]:
    """Which of S0's two cases the task is: lam 0.95 for a noisy reward, 0.99 for a quiet one."""
    seen = reward_noise(best.finished[0].curve.score) if best.finished else None
    if seen is not None:
        kind = "noisy" if seen.noisy else "quiet"
        yield (
            f"reward noise: a step deviates from the fitted curve by {seen.share.value:.0%} of the trial's gain, "
            f"a {kind} task, for which S0 gives lam {seen.lam:g}"
        )


def _smoothness(arm: Measured, name: str) -> Iterator[str]:
    if not arm.finished:
        return
    score = arm.finished[0].curve.score
    rough, period = roughness(score), hidden_oscillation(score)
    if rough.known:
        wave = f"; it swings every {period.period_steps:.0f} steps by {period.amplitude:.3g}" if period.found else ""
        yield f"smoothness of the {name}: roughness {rough.value:.0%} of its gain{wave}"


def _gradient_noise(stage: Stage, progress: Progress, arms: Iterable[Measured]) -> Iterator[str]:
    """The gradient noise scale from the smallest and the largest mini-batch, where their logged norms can tell."""
    by_size = {
        batch_of(progress.base.merged(arm.arm.settings), stage).mini_batch: arm.finished[0].curve.grad_norm
        for arm in arms
        if arm.finished
    }
    if len(by_size) < 2:
        return
    small, large = min(by_size), max(by_size)
    scale = gradient_noise_scale(by_size[small], by_size[large], small_batch=small, large_batch=large)
    if scale.known and math.isfinite(scale.standard_error):
        yield (
            f"gradient noise scale {scale.value:.3g} +- {scale.standard_error:.2g} prompts, from mini-batches {small} "
            f"and {large}: much smaller mini-batches waste nothing, much larger ones gain nothing"
        )
    else:
        yield f"gradient noise scale: the norms at mini-batches {small} and {large} cannot tell"
