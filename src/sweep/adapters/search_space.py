"""A stage's search space in Optuna's terms: `distributions`, `parameters`, `sampler`, `describe`, `changes`.

Values outside a knob's range are clipped here and only here; what really ran stays in the trial's own record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

    A sampler rebuilt with one fixed seed would propose the same point again and again.

    Raises:
        ConfigError: if Optuna has no such sampler, or it cannot be made from a seed alone.
    """
    import optuna

    kind = getattr(optuna.samplers, rule.sampler, None)
    known = sorted(n for n in dir(optuna.samplers) if n.endswith("Sampler") and not n.startswith(("Base", "Partial")))
    if kind is None or rule.sampler not in known:
        raise ConfigError(f"stage {stage.name} asks for sampler {rule.sampler}; Optuna has {', '.join(known)}")
    drawn = () if rule.sampler in FIXED_SEED_SAMPLERS else draws
    options: dict[str, Any] = {"seed": int(content_hash([campaign_seed, stage.name, *drawn], digits=8), 16)}
    if rule.sampler == "TPESampler":
        options["n_startup_trials"] = TPE_STARTUP_TRIALS
    if drawn != draws:  # what the fixed sequence leaves to chance must not be fixed with it
        free = int(content_hash([campaign_seed, stage.name, *draws], digits=8), 16)
        options["independent_sampler"] = optuna.samplers.RandomSampler(seed=free)
    try:
        made: BaseSampler = kind(**options)
    except (TypeError, ImportError, ValueError) as error:
        raise ConfigError(f"stage {stage.name} cannot use sampler {rule.sampler}: {error}; try TPESampler") from None
    return made


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
