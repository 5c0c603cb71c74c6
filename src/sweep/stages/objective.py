"""Objectives: what a finished trial is worth to its stage, higher is better.

Each is a function of the trial's curve after warm-up; `score` looks it up by name or import path. dR is always taken
from the raw score, never from the reward after the KL penalty, which moves with `kl_coef` (METHOD section 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.kl_band import HIGH_KL_NATS
from sweep.core.outcome import Finished
from sweep.core.overrides import Value
from sweep.core.stage import Constraint, Stage
from sweep.core.winner import Score
from sweep.errors import ConfigError
from sweep.stages.user_code import call
from sweep.stats.estimate import Estimate
from sweep.stats.gain import DEFAULT_GAIN, Gain, area_gain, common_start, fitted_gain, steps_to_level
from sweep.stats.timing import step_time

LEVEL_SHARE = 0.25
"""Share of the steps, at the end, whose mean score is the reward reached. Ours: at 40 steps, ten of them."""

ROUGHNESS_WEIGHT = 1.0
"""Standard errors of the mean score, by its step-to-step roughness, that are given up for it; or
`objective_options.roughness_weight`. Ours: of two curves equally high the smoother one wins, and no more than what the
swings leave uncertain is given up."""

GEN_SECONDS = "gen_seconds"
"""The part of a throughput's score that is the mean time of a step's generation."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a stage's baselines say of all its trials; None for what they do not say.

    `reward`: the score that all of them begin at, else each has its own start. `step_seconds`: of the baseline, the
    pace that losses are counted by, else by the trial's own.
    """

    reward: float | None = None
    step_seconds: float | None = None


UNKNOWN_ORIGIN = Origin()
"""Without a baseline."""


@lru_cache(maxsize=4096)  # rules replay their walk at each decision; a finished trial's score never changes
def score(stage: Stage, finished: Finished, origin: Origin = UNKNOWN_ORIGIN) -> Score:
    """The trial's score under the stage's objective; NaN if the curve cannot tell.

    `origin` is what a rule knows from the stage's baselines better than from one trial.

    Raises:
        LookupError: for an objective that is neither known nor importable.
        ConfigError: if an objective of the user's fails, or returns anything but a score.
    """
    if stage.objective in _PER_SECOND:
        return _PER_SECOND[stage.objective](stage, finished, origin)
    if ":" in stage.objective:
        found = call(stage, "objective", stage.objective, stage, finished)
    else:
        found = _known(stage.objective)(stage, finished)
    if not isinstance(found, Score):
        raise ConfigError(f"stage {stage.name}: objective {stage.objective} must return a Score, got {found!r}")
    numbers = (found.value, found.standard_error, *(value for _, value in found.parts))
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise ConfigError(f"stage {stage.name}: objective {stage.objective} must score in numbers, got {found!r}")
    return found


def pace_of(stage: Stage, baselines: Iterable[Finished]) -> Origin:
    """The baselines' seconds a step, mean over their trials, as far as the objective asks."""
    if stage.objective not in _PER_SECOND:
        return UNKNOWN_ORIGIN
    times = (step_time(f.curve.step_seconds, stage.budget.warmup_steps).value for f in baselines)
    known = [t for t in times if t > 0]
    return Origin(None, fmean(known) if known else None)


def origin_of(stage: Stage, baselines: Sequence[Finished]) -> Origin:
    """The baselines' pace and, where the objective asks, the score that every trial begins at by them."""
    found = pace_of(stage, baselines)
    if stage.objective != area_per_second.__name__:
        return found
    return replace(found, reward=common_start(f.curve.score for f in baselines))


def gain(stage: Stage) -> Gain:
    """What the stage's verdicts and intervals take for reward gained: the same as its scores."""
    return "fitted" if stage.objective == reward_per_second.__name__ else DEFAULT_GAIN


def violations(stage: Stage, finished: Finished, baselines: Iterable[Finished] = ()) -> tuple[str, ...]:
    """The constraints that the trial broke, in words; a series that was not logged breaks none.

    `baselines` are the stage's own trials of its baseline on the same seeds.
    """
    if not stage.constraints:
        return ()
    own, *others = (f.curve.since(stage.budget.warmup_steps + 1) for f in (finished, *baselines))
    return tuple(text for c in stage.constraints if (text := _violation(c, own, others)))


def reward_per_second(stage: Stage, finished: Finished, origin: Origin = UNKNOWN_ORIGIN) -> Score:
    """Fitted reward gained over the trial divided by seconds a step. Source: S0 section 2.1 (dR / T).

    A loss is worse the slower it came (`_per_second`).
    """
    return _per_second(stage, finished, fitted_gain(finished.curve.score), origin)


def area_per_second(stage: Stage, finished: Finished, origin: Origin = UNKNOWN_ORIGIN) -> Score:
    """Mean height of the fitted reward above its start divided by seconds a step; a loss is worse the slower it came.

    Where curves saturate within the trial it still tells fast from slow, which the gain over fixed steps does not.
    Source: S0 section 2.1 for dR / T; the area is ours, chosen by evidence (`stats.gain.DEFAULT_GAIN`).
    """
    return _per_second(stage, finished, area_gain(finished.curve.score, origin.reward), origin)


def _per_second(stage: Stage, finished: Finished, gain: Estimate, origin: Origin) -> Score:
    """gain / T for a gain, gain x T / T0^2 for a loss, which divided by T would look smaller the slower the trial.

    T0 is the baseline's step: at its pace gain and loss are counted alike. Source: S0 section 2.1 for dR / T; ours for
    a loss, of which S0 says nothing.
    """
    seconds = step_time(finished.curve.step_seconds, stage.budget.warmup_steps).value
    pace = origin.step_seconds or seconds
    parts = (("gain", gain.value), ("step_seconds", seconds))
    if not seconds > 0:
        return Score(math.nan, math.nan, parts)
    rate = seconds / pace**2 if gain.value < 0 else 1 / seconds
    return Score(gain.value * rate, abs(gain.standard_error * rate), parts)


_PER_SECOND: dict[str, Callable[[Stage, Finished, Origin], Score]] = {
    f.__name__: f for f in (area_per_second, reward_per_second)
}
"""Objectives by reward and time, which a stage's baselines bear on."""


def speed_to_level(stage: Stage, finished: Finished) -> Score:
    """One over the seconds of training until the fitted reward reaches `objective_options.level`; NaN if it never does.

    Raises:
        LookupError: if the stage states no level.
    """
    level = stage.objective_options.get("level")
    if not isinstance(level, int | float):
        raise LookupError(f"stage {stage.name}: objective speed_to_level needs objective_options.level, got {level!r}")
    steps = steps_to_level(finished.curve.score, float(level))
    seconds = step_time(finished.curve.step_seconds, stage.budget.warmup_steps)
    if not steps.known or not seconds.value > 0:
        return Score(math.nan)
    value = 1 / (steps.value * seconds.value)
    return Score(value, value * steps.relative_error, (("steps", steps.value), ("step_seconds", seconds.value)))


def reward_in_band(stage: Stage, finished: Finished) -> Score:
    """Score reached at the end, discounted by how far mean KL lies above its band.

    value = level - |level| * (1 - min(1, band / KL)), so that KL above the band costs a negative level as much as a
    positive one, with the upper edge of the band from `objective_options.kl_band_high`, else from the stage's own band
    controller, else S0's. A KL under the band is not punished: a penalty that holds the policy back already shows in
    the level. Source: S0 section 2.2; the discount is ours.
    """
    level = _level(finished.curve.score)
    kl = _mean(_tail(finished.curve.kl_nats))
    high = _option(stage, "kl_band_high", stage.fixed.get(keys.BAND_HIGH, HIGH_KL_NATS))
    discount = min(1.0, high / kl) if kl > 0 else 1.0
    value = level.value - abs(level.value) * (1 - discount)
    return Score(value, level.standard_error, (("level", level.value), ("kl_nats", kl)))


def rollout_throughput(stage: Stage, finished: Finished) -> Score:
    """Tokens generated a second of rollout: response tokens of a step over its generation time, mean over steps."""
    curve = finished.curve.since(stage.budget.warmup_steps + 1)
    rates = [v for v in curve.rollout_tokens_per_s if math.isfinite(v)]
    if not rates:
        rates = [t / g for t, g in zip(curve.total_tokens, curve.gen_seconds, strict=True) if g > 0]
    return Score(_mean(rates), _standard_error(rates), ((GEN_SECONDS, _mean(curve.gen_seconds)),))


def height_and_smoothness(stage: Stage, finished: Finished) -> Score:
    """Mean score over the trial minus the error that its roughness gives it: high early, and without oscillation.

    Roughness is the standard deviation of second differences over sqrt(6), which a smooth trend does not move and
    white noise of deviation s makes s. Source: METHOD section 5 (height and smoothness); the estimator is ours.
    """
    values = [v for v in finished.curve.score if math.isfinite(v)]
    roughness = _roughness(values)
    error = roughness / math.sqrt(len(values)) if values else math.nan
    value = _mean(values) - _option(stage, "roughness_weight", ROUGHNESS_WEIGHT) * error
    return Score(value, error, (("height", _mean(values)), ("roughness", roughness)))


_OBJECTIVES: dict[str, Callable[[Stage, Finished], Score]] = {
    f.__name__: f
    for f in (
        speed_to_level,
        reward_in_band,
        rollout_throughput,
        height_and_smoothness,
    )
}


OPTIONS = {
    speed_to_level.__name__: ("level",),
    reward_in_band.__name__: ("kl_band_high",),
    height_and_smoothness.__name__: ("roughness_weight",),
}
"""What an objective reads of `objective_options`, all of it numbers; the others read nothing."""


def names() -> tuple[str, ...]:
    """The objectives that a stage can name without an import path."""
    return (*_PER_SECOND, *_OBJECTIVES)


def _option(stage: Stage, name: str, default: Value) -> float:
    """The number that `objective_options` gives, else the default.

    Raises:
        ConfigError: if it is no number.
    """
    value = stage.objective_options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"stage {stage.name}: objective_options.{name} must be a number, got {value!r}")
    return float(value)


def _known(name: str) -> Callable[[Stage, Finished], Score]:
    if name not in _OBJECTIVES:
        raise LookupError(f"objective must be one of {', '.join(names())} or module:function, got {name!r}")
    return _OBJECTIVES[name]


_STATISTICS: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}


def _violation(constraint: Constraint, curve: Curve, baselines: Sequence[Curve]) -> str:
    value = _statistic(constraint, curve)
    slack, known = constraint.baseline_slack, [_statistic(constraint, c) for c in baselines]
    for bound, word, side in ((constraint.low, "under", -1), (constraint.high, "over", 1)):
        if bound is None:
            continue
        worst = max((v for v in known if math.isfinite(v)), key=lambda v: side * v, default=bound)
        moved = slack is not None and side * worst > side * bound
        limit = worst + side * abs(worst) * (slack or 0.0) if moved else bound
        if side * value > side * limit:
            aside = f", the baseline's {worst:.4g} and {slack:.0%}" if moved else ""
            return f"{constraint.statistic} {constraint.series} {value:.4g} is {word} {limit:.4g}{aside}"
    return ""


def _statistic(constraint: Constraint, curve: Curve) -> float:
    """The constraint's statistic of the logged values; NaN if there are none."""
    values = [v for v in getattr(curve, constraint.series) if math.isfinite(v)]
    return _STATISTICS[constraint.statistic](values) if values else math.nan


def _tail(values: tuple[float, ...]) -> tuple[float, ...]:
    return values[-max(1, math.ceil(len(values) * LEVEL_SHARE)) :] if values else ()


def _level(values: tuple[float, ...]) -> Score:
    tail = [v for v in _tail(values) if math.isfinite(v)]
    return Score(_mean(tail), _standard_error(tail))


def _mean(values: tuple[float, ...] | list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return fmean(finite) if finite else math.nan


def _standard_error(values: list[float]) -> float:
    if len(values) < 2:
        return math.nan
    mean = fmean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def _roughness(values: list[float]) -> float:
    bends = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return math.sqrt(fmean(b * b for b in bends) / 6) if bends else math.nan
