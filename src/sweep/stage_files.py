"""`sweeps/*.yaml` to `Stage`: one function a section, each with a message that names the file and the key."""

from __future__ import annotations

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
    Stage,
    StageBudget,
)
from sweep.core.trial import Measure
from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.settings_text import parse_settings
from sweep.stage_rules import rule_from
from sweep.stages import objective
from sweep.yaml_values import built, importable, known_keys, listing, number, section

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
    options = section(f"{where}: objective_options", content.get("objective_options"))
    constraints = section(f"{where}: constraints", content.get("constraints"))
    return Stage(
        name=name,
        knobs=knobs,
        rule=rule,
        objective=_objective(where, content, options),
        budget=_with_every_arm(_budget(where, content, measure), rule),
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
    if knob.log and knob.low <= 0:
        raise ConfigError(f"{where}.low must be above 0 where log is true, got {knob.low:g}")
    return knob


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
    if name == objective.speed_to_level.__name__:
        number(f"{where}: objective_options.level, which {name} needs,", options.get("level"), Within())
    return name
