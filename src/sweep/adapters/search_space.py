"""A stage's search space in Optuna's terms: `distributions`, `parameters`, `sampler`, `describe`, `changes`.

Values outside a knob's range are clipped here and only here; what really ran stays in the trial's own record.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from sweep.core.overrides import Value, content_hash
from sweep.core.progress import Record
from sweep.core.stage import CustomRule, Knob, LadderRule, SearchRule, Stage
from sweep.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

TPE_STARTUP_TRIALS = 4
"""Random draws before TPE models anything. Ours: Optuna's 10 would use up a stage's whole budget."""

FIXED_SEED_SAMPLERS = frozenset({"QMCSampler"})
"""Samplers whose sequence is one whole: they count their draws in the study and need the same seed every time."""

WARN_EACH_DRAW = frozenset({"CmaEsSampler", "QMCSampler"})
"""Samplers that warn of each point that they draw aside from their model unless they are told not to."""

SAMPLERS_OF_TWO = frozenset({"CmaEsSampler"})
"""Samplers that leave a space of one knob to chance. Source: Optuna's CmaEsSampler.sample_relative."""


def distributions(stage: Stage) -> dict[str, BaseDistribution]:
    """Knob key to Optuna distribution, in the order of the knobs.

    Raises:
        ConfigError: if a range is empty, or logarithmic and not positive.
    """
    return {knob.key: _distribution(stage, knob) for knob in stage.knobs}


def parameters(stage: Stage, record: Record) -> dict[str, float | int]:
    """Knob key to the value the rule asked for, clipped to its range; a knob without a number is left out."""
    found: dict[str, float | int] = {}
    for knob in stage.knobs:
        sources = (record.requested, record.settings, record.trial.overrides)
        value = next((v for v in (source.get(knob.key) for source in sources) if v is not None), None)
        if _is_number(value):
            found[knob.key] = _clipped(knob, value)
    return found


def sampler(stage: Stage, rule: SearchRule, campaign_seed: int, *draws: int) -> BaseSampler:
    """The rule's sampler, seeded from the campaign's seed and the `draws` made so far.

    A sampler rebuilt with one fixed seed would propose the same point again and again. What Optuna warns of each time
    it makes one, or draws a point aside from its model, is left out: the campaign makes one a draw.

    Raises:
        ConfigError: if Optuna has no such sampler, or it cannot be made from a seed alone.
    """
    import optuna

    kind = getattr(optuna.samplers, rule.sampler, None)
    if kind is None or rule.sampler not in sampler_names():
        usable = [name for name in sampler_names() if _is_usable(stage, rule, campaign_seed, name)]
        raise ConfigError(f"stage {stage.name} asks for sampler {rule.sampler}; here work {', '.join(usable)}")
    drawn = () if rule.sampler in FIXED_SEED_SAMPLERS else draws
    options: dict[str, Any] = {"seed": int(content_hash([campaign_seed, stage.name, *drawn], digits=8), 16)}
    if rule.sampler == "TPESampler":
        options["n_startup_trials"] = TPE_STARTUP_TRIALS
    if drawn != draws:  # what the fixed sequence leaves to chance must not be fixed with it
        free = int(content_hash([campaign_seed, stage.name, *draws], digits=8), 16)
        options["independent_sampler"] = optuna.samplers.RandomSampler(seed=free)
    if rule.sampler in WARN_EACH_DRAW:
        options["warn_independent_sampling"] = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made: BaseSampler = kind(**options)
    except (TypeError, ImportError, ValueError) as error:
        raise unusable(stage, rule, error) from None
    return made


def sampler_names() -> list[str]:
    """The samplers of the installed Optuna."""
    import optuna

    return sorted(n for n in dir(optuna.samplers) if n.endswith("Sampler") and not n.startswith(("Base", "Partial")))


def try_out(stage: Stage, rule: SearchRule, campaign_seed: int) -> None:
    """Two points drawn of a study in memory, the second with a result to learn from.

    Raises:
        ConfigError: if the sampler cannot be made, or cannot draw from the stage's ranges.
    """
    import optuna

    if rule.sampler in SAMPLERS_OF_TWO and len(stage.knobs) < 2:
        raise ConfigError(f"stage {stage.name}: {rule.sampler} draws a single knob at random; try TPESampler")
    space = distributions(stage)
    study = optuna.create_study(direction="maximize", sampler=sampler(stage, rule, campaign_seed))
    for result in (0.0, 1.0):
        try:
            drawn = study.ask(space)
        except Exception as error:  # whatever a sampler meets in these ranges or does not find installed
            raise unusable(stage, rule, error) from None
        study.tell(drawn, result)


def unusable(stage: Stage, rule: SearchRule, error: Exception) -> ConfigError:
    """The message about a sampler that raised this."""
    if isinstance(error, ImportError):
        return ConfigError(f"stage {stage.name}: sampler {rule.sampler} needs the Python package {error.name}")
    return ConfigError(f"stage {stage.name} cannot use sampler {rule.sampler}: {error}; try TPESampler")


def _is_usable(stage: Stage, rule: SearchRule, campaign_seed: int, name: str) -> bool:
    try:
        try_out(stage, replace(rule, sampler=name), campaign_seed)
    except ConfigError:
        return False
    return True


def describe(stage: Stage) -> dict[str, Any]:
    """What decides which points a stage may visit and what their values mean, as plain JSON types."""
    rule: dict[str, Any] = {"kind": type(stage.rule).__name__}
    if isinstance(stage.rule, LadderRule):
        for ladder in stage.rule.ladders:
            rule[f"ladder {ladder.name}"] = {rung.name: rung.settings.to_json() for rung in ladder.rungs}
    if isinstance(stage.rule, CustomRule):
        rule["import_path"] = stage.rule.import_path
    knobs = {
        k.key: {"low": k.low, "high": k.high, "log": k.log, "integer": k.integer}
        for k in sorted(stage.knobs, key=lambda k: k.key)
    }
    return {"knobs": knobs, "rule": rule, "objective": stage.objective, "fixed": stage.fixed.to_json()}


def changes(stored: Mapping[str, Any], current: Mapping[str, Any], path: str = "") -> tuple[str, ...]:
    """Every difference between two descriptions, each as `where: old -> new`; empty if there is none."""
    found: list[str] = []
    for key in sorted(stored.keys() | current.keys()):
        where = f"{path}{key}" if not path else f"{path}.{key}"
        old, new = stored.get(key, "nothing"), current.get(key, "nothing")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes(old, new, where)
        elif content_hash(old) != content_hash(new):
            found.append(f"{where}: {old} -> {new}")
    return tuple(found)


def _distribution(stage: Stage, knob: Knob) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    try:
        if knob.integer:
            return IntDistribution(math.ceil(knob.low), math.floor(knob.high), log=knob.log)
        return FloatDistribution(float(knob.low), float(knob.high), log=knob.log)
    except ValueError as error:
        raise ConfigError(f"stage {stage.name}: range of {knob.key} cannot be searched: {error}") from None


def _clipped(knob: Knob, value: float) -> float | int:
    if knob.integer:
        return min(max(round(value), math.ceil(knob.low)), math.floor(knob.high))
    return min(max(float(value), float(knob.low)), float(knob.high))


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
