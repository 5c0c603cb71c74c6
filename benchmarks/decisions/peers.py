"""The peers, run as their users run them: all knobs at once or one after the other, one run a point, best one kept.

Each is a generator of (settings of its incumbent) after every trial; `World.spent_steps` tells what it has paid.
Objective: `World.measured`, with the start of the curve known exactly, which is more than a user has.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import optuna

from benchmarks.decisions.worlds import STEPS, World
from sweep.core import verl_keys as keys
from sweep.core.outcome import Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.engines.rehearsal.curves import OOM_STEP
from sweep.engines.rehearsal.surfaces import RANGES

TRIALS_A_KNOB = 8
"""Trials of a knob in the step-wise search: LightGBMTuner spends 6-20 on one of its parameters."""

RUNGS = (125, STEPS)
REDUCTION = 4
CONCURRENT = 4
"""ASHA: Ray's reduction factor, a quarter of the trial as grace period, four trials at a time."""

optuna.logging.set_verbosity(optuna.logging.ERROR)
logging.getLogger("ray.tune").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

Incumbents = Iterator[Overrides]


def distributions() -> dict[str, optuna.distributions.BaseDistribution]:
    """The five knobs over the ranges that every method has."""
    from optuna.distributions import FloatDistribution, IntDistribution

    whole = {keys.MINI_BATCH, keys.MAX_BATCHED_TOKENS}
    return {
        key: IntDistribution(int(low), int(high), log=True)
        if key in whole
        else FloatDistribution(low, high, log=key != keys.LAM)
        for key, (low, high) in RANGES.items()
    }


def random_search(world: World, seed: int) -> Incumbents:
    """Uniform over the ranges, log scale where the knob has one."""
    return _joint(world, optuna.samplers.RandomSampler(seed=seed))


def joint_tpe(world: World, seed: int) -> Incumbents:
    """Optuna's TPE over all knobs together, its defaults, after the default configuration."""
    return _joint(world, optuna.samplers.TPESampler(seed=seed))


def _joint(world: World, sampler: optuna.samplers.BaseSampler) -> Incumbents:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    best = _Best()
    best.see(_tell_default(study, world, distributions()), NOTHING)
    while True:
        trial = study.ask(distributions())
        value = _value(world, trial.params, len(study.trials))
        _tell(study, trial, value)
        yield best.see(value, Overrides.of(trial.params))


def stepwise_tpe(world: World, seed: int) -> Incumbents:
    """One knob after the other by TPE, each frozen at its best run, in the manner of LightGBMTuner; then over again."""
    held: dict[str, float] = {}
    best = _Best()
    best.see(_value(world, {}, 0), NOTHING)
    runs = 0
    while True:
        for knob, distribution in distributions().items():
            runs += 1
            study = optuna.create_study(
                direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + runs, n_startup_trials=3)
            )
            for number in range(TRIALS_A_KNOB):
                trial = study.ask({knob: distribution})
                point = {**held, **trial.params}
                value = _value(world, point, 1000 * runs + number)
                _tell(study, trial, value)
                yield best.see(value, Overrides.of(point))
            held = dict(best.settings.by_bare_key())  # type: ignore[arg-type]


def asha(world: World, seed: int) -> Incumbents:
    """Ray Tune's ASHA with OptunaSearch: Ray's own scheduler and searcher, fed trial by trial without a cluster."""
    from ray.tune.schedulers import AsyncHyperBandScheduler
    from ray.tune.search.optuna import OptunaSearch

    scheduler = AsyncHyperBandScheduler(
        metric="value", mode="max", max_t=STEPS, grace_period=RUNGS[0], reduction_factor=REDUCTION
    )
    searcher = OptunaSearch(
        space=distributions(), metric="value", mode="max", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    best = _Best()
    running: list[_Run] = []
    number = 0
    while True:
        while len(running) < CONCURRENT:
            number += 1
            running.append(_Run(f"t{number}", searcher.suggest(f"t{number}"), number))
            scheduler.on_trial_add(None, running[-1])
        for run in list(running):
            if not run.report(world, scheduler, searcher):
                running.remove(run)
                yield best.see(run.value, Overrides.of(run.params))


@dataclass
class _Run:
    """One of Ray Tune's trials; only the attributes that its scheduler reads."""

    trial_id: str
    params: dict[str, Any]
    seed: int
    rung: int = 0
    value: float = math.nan

    def report(self, world: World, scheduler: Any, searcher: Any) -> bool:
        """Run to the next rung and report; False once the trial is over."""
        steps = RUNGS[self.rung]
        before = world.spent_steps
        outcome = world.run(Overrides.of(self.params), self.seed)
        curve = outcome.curve if isinstance(outcome, Finished) else None
        world.spent_steps = before + (steps - (0, *RUNGS)[self.rung] if curve else OOM_STEP)
        if curve is None:
            searcher.on_trial_complete(self.trial_id, error=True)
            return False
        self.value = world.measured(curve, steps)
        result = {"value": self.value, "training_iteration": steps, "trial_id": self.trial_id}
        self.rung += 1
        if steps == STEPS or scheduler.on_trial_result(None, self, result) == "STOP":
            scheduler.on_trial_complete(None, self, result)
            searcher.on_trial_complete(self.trial_id, result)
            return False
        searcher.on_trial_result(self.trial_id, result)
        return True


class _Best:
    """The best run so far, which is what a user takes."""

    def __init__(self) -> None:
        self.value, self.settings = -math.inf, NOTHING

    def see(self, value: float, settings: Overrides) -> Overrides:
        if value > self.value:
            self.value, self.settings = value, settings
        return self.settings


def _value(world: World, params: dict[str, Any], seed: int) -> float:
    """The objective of one run; NaN if it died."""
    outcome = world.run(Overrides.of(params), seed)
    return world.measured(outcome.curve) if isinstance(outcome, Finished) else math.nan


def _tell(study: optuna.Study, trial: optuna.trial.Trial, value: float) -> None:
    if math.isnan(value):
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, value)


def _tell_default(study: optuna.Study, world: World, space: dict[str, Any]) -> float:
    """The default configuration as first trial, so that a peer can keep it."""
    value = _value(world, {}, 0)
    defaults = {
        keys.MINI_BATCH: 256,
        keys.KL_COEF: 0.001,
        keys.MAX_BATCHED_TOKENS: 8192,
        keys.ACTOR_LR: 1e-6,
        keys.LAM: 0.99,
    }
    study.add_trial(optuna.trial.create_trial(params=defaults, distributions=space, value=value))
    return value


PEERS: dict[str, Callable[[World, int], Incumbents]] = {
    "random": random_search,
    "joint TPE": joint_tpe,
    "step-wise TPE": stepwise_tpe,
    "ASHA + OptunaSearch": asha,
}
