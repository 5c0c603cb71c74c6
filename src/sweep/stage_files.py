"""`sweeps/*.yaml` to `Stage`: one function a section, each with a message that names the file and the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS
from sweep.core.kl_band import BAND, SECTION, KlBandSettings, broken
from sweep.core.overrides import NOTHING, Overrides, bare
from sweep.core.plan import ModelFacts
from sweep.core.stage import (
    ConfirmRule,
    Constraint,
    Knob,
    Rounds,
    Rule,
    SearchRule,
    Stage,
    StageBudget,
)
from sweep.core.trial import Measure
from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.settings_text import parse_settings
from sweep.stage_rules import in_range, rule_from
from sweep.stages import objective
from sweep.yaml_values import built, fitting, importable, known_keys, listing, number, section

MOST_KNOBS = 2
"""Source: S0 section 2, one or two parameters a step."""

VLLM = "vllm"
"""verl's name of the rollout that can be measured alone; also its rollout on GPUs where nothing else is asked for."""

KEYS = frozenset(
    {
        "knobs",
        "fixed",
        "band",
        "rule",
        "bracket",
        "eta",
        "ladder",
        "search",
        "objective",
        "objective_options",
        "constraints",
    }
    | {"budget", "follows", "measure", "rounds", "beside"}
)

STATISTICS = ("mean", "min", "max")


def stage_from(name: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts) -> Stage:
    """The stage that a file in `sweeps/` describes, its ladders laid over the base configuration.

    Raises:
        ConfigError: for an unknown key, rule, objective or a value that cannot work.
    """
    where = f"sweeps/{name}.yaml"
    content = section(where, content)
    known_keys(where, content, KEYS)
    knobs = tuple(_knob(f"{where}: knobs.{n}", k) for n, k in section(f"{where}: knobs", content.get("knobs")).items())
    _check_knobs(where, knobs, content.get("rule"))
    measure = _measure(where, content, base, model)
    rule = rule_from(where, content, base, model, knobs)
    budget = _with_every_arm(_budget(where, content, measure), rule)
    if isinstance(rule, SearchRule):
        _check_starts(f"{where}: search.start", rule, knobs, budget)
    options = section(f"{where}: objective_options", content.get("objective_options"))
    constraints = section(f"{where}: constraints", content.get("constraints"))
    return Stage(
        name=name,
        knobs=knobs,
        rule=rule,
        objective=_objective(where, content, options),
        budget=budget,
        fixed=_fixed(where, content, knobs),
        constraints=tuple(_constraint(f"{where}: constraints.{n}", c) for n, c in constraints.items()),
        follows=tuple(listing(f"{where}: follows", content.get("follows"))),
        measure=measure,
        objective_options=Overrides.of(options),
    )


def _knob(where: str, content: object) -> Knob:
    knob = built(Knob, where, content)
    if not knob.key:
        raise ConfigError(f"{where}.key must name a verl setting, got an empty text")
    if knob.low > knob.high:
        raise ConfigError(f"{where} needs a range, got {knob.low:g} to {knob.high:g}")
    if knob.integer and math.ceil(knob.low) > math.floor(knob.high):
        raise ConfigError(
            f"{where}: no whole number lies within {knob.low:g} to {knob.high:g}; widen it, or integer: false"
        )
    if knob.log and knob.low <= 0:
        raise ConfigError(f"{where}.low must be above 0 where log is true, got {knob.low:g}")
    return knob


def _check_starts(where: str, rule: SearchRule, knobs: tuple[Knob, ...], budget: StageBudget) -> None:
    """Raises: ConfigError: for a start that is no point of the knobs' ranges, or more of them than the budget runs."""
    by_key = {bare(knob.key): knob for knob in knobs}
    for start in rule.start:
        if not start:
            raise ConfigError(f"{where} has an entry without a value; knobs: {', '.join(by_key)}")
        for key, value in start.by_bare_key().items():
            if key not in by_key:
                raise ConfigError(f"{where} sets {key}, which is no knob of the stage; knobs: {', '.join(by_key)}")
            _check_in_range(f"{where}: {key}", value, by_key[key])
    arms = 1 + len(set(rule.start))
    if arms > budget.trials:
        raise ConfigError(
            f"{where} has {arms - 1} points, which with the baseline are more than budget.trials={budget.trials}; "
            f"give budget.trials={arms} or more, or fewer points"
        )


def _check_in_range(where: str, value: object, knob: Knob) -> None:
    found = fitting(where, int if knob.integer else float, value)
    if not in_range(knob, found):
        raise ConfigError(f"{where} must be within the knob's range, {knob.low:g} to {knob.high:g}, got {found:g}")


def _fixed(where: str, content: Mapping[str, Any], knobs: tuple[Knob, ...]) -> Overrides:
    """What is the same in every candidate: the controller of the section `band`, and the settings under `fixed`."""
    lines = Overrides.of(parse_settings(content.get("fixed"), f"{where}: fixed"))
    fixed = _band(f"{where}: band", content.get("band")).merged(lines)
    for knob in knobs:
        if knob.key in fixed:
            raise ConfigError(f"{where}: fixed sets {bare(knob.key)}, which is a knob; leave it to one of them")
    return fixed


def _band(where: str, content: object) -> Overrides:
    """The band controller, each of its settings in full."""
    if content is None:
        return NOTHING
    settings = built(KlBandSettings, where, content)
    for relation, names in broken(settings):
        found = ", ".join(f"{name}={getattr(settings, name)}" for name in names)
        raise ConfigError(f"{where} needs {relation}, got {found}")
    return Overrides.of(
        [(keys.KL_TYPE, BAND), *((f"+{SECTION}.{name}", value) for name, value in asdict(settings).items())]
    )


def _check_knobs(where: str, knobs: tuple[Knob, ...], rule: object) -> None:
    if rule == "confirm" and knobs:
        raise ConfigError(f"{where}: a confirmation has no knobs, got {len(knobs)}")
    if rule != "confirm" and not 1 <= len(knobs) <= MOST_KNOBS:
        raise ConfigError(f"{where}: a stage has one or two knobs, got {len(knobs)}")
    if len({bare(k.key) for k in knobs}) < len(knobs):
        raise ConfigError(f"{where}: each knob needs a key of its own, got {knobs[0].key} twice")


def _constraint(where: str, content: object) -> Constraint:
    found = built(Constraint, where, content)
    for name, value, known in (("series", found.series, METRICS), ("statistic", found.statistic, STATISTICS)):
        if value not in known:
            raise ConfigError(f"{where}.{name} must be one of {', '.join(known)}, got {value!r}")
    if found.low is None and found.high is None:
        raise ConfigError(f"{where} bounds nothing; give low, high or both")
    if found.low is not None and found.high is not None and found.low > found.high:
        raise ConfigError(f"{where} needs a range, got {found.low:g} to {found.high:g}")
    return found


def _measure(where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts) -> Measure:
    given, known = content.get("measure", Measure.TRAINING.value), [m.value for m in Measure]
    if given not in known:
        raise ConfigError(f"{where}: measure must be one of {', '.join(known)}, got {given!r}")
    rollout = base.get(keys.ROLLOUT_NAME, VLLM if model.needs_gpu else "transformers")
    if given == Measure.ROLLOUT.value and rollout != VLLM:
        raise ConfigError(f"{where}: {model.name} generates with {rollout}, not with vLLM; set measure: training")
    return Measure(given)


def _budget(where: str, content: Mapping[str, Any], measure: Measure) -> StageBudget:
    """What the stage may spend; trials that only generate have rounds for steps, as the section `rounds` says."""
    budget = built(StageBudget, f"{where}: budget", content.get("budget"))
    rounds = built(Rounds, f"{where}: rounds", content.get("rounds"))
    if measure is not Measure.TRAINING:
        return rounds.of(budget)
    if budget.warmup_steps >= budget.steps:
        raise ConfigError(
            f"{where}: budget.warmup_steps must be below budget.steps, got {budget.warmup_steps} and {budget.steps}"
        )
    return budget


def _with_every_arm(budget: StageBudget, rule: Rule) -> StageBudget:
    """A confirmation runs base, winner and each configuration beside them, whatever its file counts."""
    return replace(budget, trials=2 + len(rule.beside)) if isinstance(rule, ConfirmRule) else budget


def _objective(where: str, content: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    name = str(content.get("objective", ""))
    if name not in objective.names() and ":" not in name:
        known = ", ".join(objective.names())
        raise ConfigError(f"{where}: objective must be one of {known} or module:function, got {name!r}")
    if ":" in name:
        importable(f"{where}: objective", name)
    else:
        _check_options(where, name, options)
    return name


def _check_options(where: str, name: str, options: Mapping[str, Any]) -> None:
    """Raises: ConfigError: for an option that the objective does not read, or that is no number."""
    known = objective.OPTIONS.get(name, ())
    if unknown := sorted(set(options) - set(known)):
        reads = f"reads {', '.join(known)}" if known else "has no options"
        raise ConfigError(f"{where}: objective_options: unknown key {', '.join(unknown)}; {name} {reads}")
    for option in known:
        if option in options:
            number(f"{where}: objective_options.{option}", options[option], Within())
    if name == objective.speed_to_level.__name__:
        number(f"{where}: objective_options.level, which {name} needs,", options.get("level"), Within())
