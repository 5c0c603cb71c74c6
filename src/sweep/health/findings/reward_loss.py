"""Reward that is zero from the start, never changes, or was lost after it had been gained.

A fall is measured between levels (medians of several points) and against the noise of a level, so that neither a
pulse nor a noisy batch counts. Reward under the run's own start is the graver case: the training did harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import best_level, final_level, level_error, level_points, start_level


@dataclass(frozen=True, slots=True)
class Loss:
    """Levels of a reward: at the start, at its best, at the end; `below_start` if it ended under where it began."""

    start: float
    best: float
    end: float
    below_start: bool


def reward_loss(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding: all zero, constant, or fallen."""
    reward = evidence.series(Quantity.REWARD)
    if reward is None or len(reward) < evidence.limits.all_zero_points:
        return ()
    if not reward.values.any():
        return (_all_zero(evidence, reward),)
    if len(reward) >= evidence.limits.creep_points and np.ptp(reward.values) == 0:
        return (_constant(reward),)
    loss = measure(evidence, reward)
    return (_drop(evidence, reward, loss),) if loss else ()


def fell_below_start(evidence: Evidence) -> bool:
    """Whether the reward of the run ended clearly under where it began."""
    reward = evidence.series(Quantity.REWARD)
    loss = measure(evidence, reward) if reward is not None else None
    return loss is not None and loss.below_start


def measure(evidence: Evidence, reward: Series) -> Loss | None:
    """What was lost; None unless it is more than noise, lasts, and is most of the gain or lies under the start.

    Lasting: under the start, every one of the last points, twice as many as make a level, lies below it by half of
    what counts. A guard asks after each step, so one unlucky level must not end a trial; for a warning, half a level
    is enough.
    """
    limits, values = evidence.limits, reward.values
    width = level_points(len(values))
    if len(values) < 2 * width + 1:
        return None
    start, best, end = start_level(values), best_level(values), final_level(values)
    error = math.sqrt(2) * level_error(values)
    error = error if math.isfinite(error) else 0.0
    clear = max(limits.plateau_fluctuation, limits.drop_noise * error)
    clear_of_best = max(limits.plateau_fluctuation, limits.drop_best_noise * error)
    long, short = min(max(2 * width, limits.plateau_min_points), len(values) - width), max(width // 2, 2)
    under = max(clear, limits.drop_relative * abs(start))
    below_start = start - end > under and bool((values[-long:] < start - under / 2).all())
    most = max(clear_of_best, limits.drop_share * (best - start))
    gain_lost = best - start > clear_of_best and best - end > most and bool((values[-short:] < best - most / 2).all())
    return Loss(start, best, end, below_start) if below_start or gain_lost else None


def _drop(evidence: Evidence, reward: Series, loss: Loss) -> Finding:
    halfway = (loss.best + loss.end) / 2
    above = np.flatnonzero(reward.values > halfway)
    first = min(int(above[-1]) + 1 if len(above) else 0, len(reward) - 1)
    enough = len(reward) >= evidence.limits.plateau_min_points
    whence = "below its start" if loss.below_start else "most of its gain"
    return Finding(
        code=Code.REWARD_DROP,
        severity=(Severity.CRITICAL if enough else Severity.ERROR) if loss.below_start else Severity.WARN,
        metric=reward.name,
        first_step=int(reward.steps[first]),
        last_step=int(reward.steps[-1]),
        seen=f"reward went from {loss.start:.4g} to {loss.best:.4g} at best and ended at {loss.end:.4g}: lost {whence}",
        confidence=Confidence.HIGH if enough else Confidence.MEDIUM,
        advice="stop and go back to the best checkpoint; look at what moved first: KL, gradient, entropy, lengths",
        direction=(Move(Way.LOWER, keys.ACTOR_LR), Move(Way.LOWER, keys.ACTOR_CLIP_GRAD, "1.0 to 0.5")),
        source="trl#1098, verl#1224; METHOD section 6",
        figures=(("start", loss.start), ("best", loss.best), ("end", loss.end)),
    )


def _all_zero(evidence: Evidence, reward: Series) -> Finding:
    sure = len(reward) >= evidence.limits.all_zero_sure_points
    dead = len(reward) >= evidence.limits.all_zero_dead_points
    printed = evidence.rounded(reward.name)
    return Finding(
        code=Code.REWARD_ALL_ZERO,
        severity=Severity.CRITICAL if dead else Severity.ERROR if sure else Severity.WARN,
        metric=reward.name,
        first_step=int(reward.steps[0]),
        last_step=int(reward.steps[-1]),
        seen=f"reward 0 at each of {len(reward)} points" + (", printed with few decimals" if printed else ""),
        confidence=Confidence.HIGH if sure and not printed else Confidence.MEDIUM,
        advice="run the reward function by hand on a few responses: wrong answer format, responses cut off before the "
        "answer, a reward key that verl ignores, or a task out of the model's reach",
        direction=(Move(Way.CHECK, keys.REWARD_PATH), Move(Way.RAISE, keys.RESPONSE_LENGTH)),
        source="METHOD section 6",
    )


def _constant(reward: Series) -> Finding:
    return Finding(
        code=Code.REWARD_CONSTANT,
        severity=Severity.INFO,
        metric=reward.name,
        first_step=int(reward.steps[0]),
        last_step=int(reward.steps[-1]),
        seen=f"reward exactly {reward.values[0]:.6g} at each of {len(reward)} points",
        confidence=Confidence.MEDIUM,
        advice="a batch mean that never moves in any digit hints at a reward function that returns one value",
        direction=(Move(Way.CHECK, keys.REWARD_PATH),),
        source="METHOD section 6",
    )
