"""`sweeps/*.yaml` to `Stage`: one function a section, each with a message that names the file and the key."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS
from sweep.core.overrides import Overrides, bare
from sweep.core.plan import ModelFacts
from sweep.core.stage import (
    BracketRule,
    ConfirmRule,
    Constraint,
    CustomRule,
    EtaRule,
    Knob,
    Ladder,
    LadderRule,
    Rollback,
    Rounds,
    Rule,
    Rung,
    SearchRule,
    Stage,
    StageBudget,
)
from sweep.core.token_budget import token_clamp
from sweep.core.trial import Measure
from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.stages import objective
from sweep.yaml_values import built, fitting, known_keys, listing, number, section

MOST_KNOBS = 2
"""Source: S0 section 2, one or two parameters a step."""

VLLM = "vllm"
"""verl's name of the rollout that can be measured alone; also its rollout on GPUs where nothing else is asked for."""

RULES = ("bracket", "eta", "article", "ladder", "search", "confirm")
KEYS = frozenset(
    {"knobs", "fixed", "rule", "bracket", "eta", "ladder", "search", "objective", "objective_options", "constraints"}
    | {"budget", "follows", "cost_key", "measure", "rounds", "beside"}
)

STATISTICS = ("mean", "min", "max")
TIE_MARGIN = Within(low=0, high=1, open_high=True)
MEMORY = "memory"
"""The only clamp of a ladder: what the article's formula allows."""


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
    options = section(f"{where}: objective_options", content.get("objective_options"))
    constraints = section(f"{where}: constraints", content.get("constraints"))
    cost_key = content.get("cost_key")
    return Stage(
        name=name,
        knobs=knobs,
        rule=_rule(where, content, base, model, knobs),
        objective=_objective(where, content, options),
        budget=_budget(where, content, measure),
        fixed=_fixed(f"{where}: fixed", content.get("fixed"), knobs),
        constraints=tuple(_constraint(f"{where}: constraints.{n}", c) for n, c in constraints.items()),
        cost_key=None if cost_key is None else fitting(f"{where}: cost_key", str, cost_key),
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


def _fixed(where: str, lines: object, knobs: tuple[Knob, ...]) -> Overrides:
    fixed = Overrides.of(parse_settings(lines, where))
    for knob in knobs:
        if knob.key in fixed:
            raise ConfigError(f"{where} sets {bare(knob.key)}, which is a knob; leave it to one of them")
    return fixed


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


def parse_settings(lines: object, where: str) -> list[tuple[str, object]]:
    """verl settings written as Hydra overrides, as (key, value) pairs; a leading `+` stays on the key.

    Raises:
        ConfigError: for a line that is not `key=value`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    pairs: list[tuple[str, object]] = []
    for line in listing(where, lines):
        try:
            parsed = parser.parse_override(line)
        except HydraException as error:
            raise ConfigError(f"{where}: cannot read {line!r} as key=value: {str(error).splitlines()[0]}") from error
        if parsed.is_delete() or parsed.is_sweep_override() or parsed.package is not None:
            raise ConfigError(f"{where}: a verl setting is a plain key=value (with + to add a key), got {line!r}")
        plus = "+" if parsed.is_add() or parsed.is_force_add() else ""
        pairs.append((plus + parsed.key_or_group, parsed.value()))
    return pairs


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
    if budget.warmup_steps >= budget.steps:
        raise ConfigError(
            f"{where}: budget.warmup_steps must be below budget.steps, got {budget.warmup_steps} and {budget.steps}"
        )
    return budget if measure is Measure.TRAINING else rounds.of(budget)


def _rule(where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]) -> Rule:
    match content.get("rule"):
        case "bracket":
            return _bracket_rule(where, content, knobs)
        case "confirm":
            return _confirm_rule(f"{where}: beside", section(f"{where}: beside", content.get("beside")))
        case "eta":
            return built(EtaRule, f"{where}: eta", content.get("eta"), literal=False)
        case "article":
            return built(EtaRule, f"{where}: eta", content.get("eta"), literal=True)
        case "ladder":
            return _ladder_rule(
                f"{where}: ladder", section(f"{where}: ladder", content.get("ladder")), base, model, knobs
            )
        case "search":
            return _search_rule(f"{where}: search", section(f"{where}: search", content.get("search")))
        case str() as path if ":" in path:
            _importable(f"{where}: rule", path)
            return CustomRule(path)
        case other:
            raise ConfigError(f"{where}: rule must be one of {', '.join(RULES)} or module:function, got {other!r}")


def _bracket_rule(where: str, content: Mapping[str, Any], knobs: tuple[Knob, ...]) -> BracketRule:
    article = built(EtaRule, f"{where}: eta", content["eta"], literal=False) if "eta" in content else None
    rule = built(BracketRule, f"{where}: bracket", content.get("bracket"), article=article)
    if rule.first_factor == 1:
        raise ConfigError(f"{where}: bracket.first_factor must be positive, not 1, got {rule.first_factor}")
    for knob in knobs:
        if not knob.low < knob.high:
            raise ConfigError(f"{where}: a bracket needs a range, got {knob.low:g} to {knob.high:g} for {knob.key}")
    return rule


def _confirm_rule(where: str, beside: Mapping[str, Any]) -> ConfirmRule:
    return ConfirmRule(
        tuple((name, Overrides.of(parse_settings(lines, f"{where}.{name}"))) for name, lines in beside.items())
    )


def _search_rule(where: str, content: Mapping[str, Any]) -> SearchRule:
    known_keys(where, content, {"sampler", "start", "tie_margin"})
    lists = listing(f"{where}.start", content.get("start"), list)
    start = tuple(Overrides.of(parse_settings(lines, f"{where}.start")) for lines in lists)
    sampler = fitting(f"{where}.sampler", str, content.get("sampler", "TPESampler"))
    return SearchRule(sampler, start, number(f"{where}.tie_margin", content.get("tie_margin", 0.02), TIE_MARGIN))


def _ladder_rule(
    where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> LadderRule:
    known_keys(where, content, {"ladders", "tie_margin", "rollback"})
    ladders = tuple(
        _ladder(f"{where}.ladders.{name}", name, section(f"{where}.ladders.{name}", spec), base, model, knobs)
        for name, spec in section(f"{where}.ladders", content.get("ladders")).items()
    )
    if not ladders:
        raise ConfigError(f"{where}: at least one ladder is needed")
    back = built(Rollback, f"{where}.rollback", content["rollback"]) if content.get("rollback") else None
    if back is not None and back.series not in METRICS:
        raise ConfigError(f"{where}.rollback: series must be one of {', '.join(METRICS)}, got {back.series!r}")
    return LadderRule(ladders, number(f"{where}.tie_margin", content.get("tie_margin", 0.02), TIE_MARGIN), back)


def _ladder(
    where: str, name: str, spec: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> Ladder:
    known_keys(where, spec, {"keys", "points", "multiples", "climb", "clamp"})
    if spec.get("clamp") not in (None, MEMORY):
        raise ConfigError(f"{where}.clamp must be {MEMORY} or left out, got {spec['clamp']!r}")
    names = listing(f"{where}.keys", spec.get("keys"))
    points = listing(f"{where}.points", spec.get("points"), list) or _multiples(where, names, spec, base)
    ranged = {k.key for k in knobs}
    for point in points:
        if len(point) != len(names):
            raise ConfigError(f"{where}: each point has one value for each of {names}, got {point}")
        for name, value in zip(names, point, strict=True):
            if name in ranged:
                number(f"{where}.points: {name}", value, Within())
    kept = [p for p in points if _within(names, p, knobs)]
    if spec.get("clamp") == MEMORY and model.gpu_gib and model.hidden_size:
        most = token_clamp(model.gpu_gib, model.hidden_size)
        kept = [p for p in kept if p[0] <= most]
    if not kept:
        raise ConfigError(f"{where}: no point lies within the knobs' ranges: {points}")
    rungs = tuple(Rung("/".join(f"{v:g}" if isinstance(v, float) else str(v) for v in p), _at(names, p)) for p in kept)
    return Ladder(name, rungs, fitting(f"{where}.climb", bool, spec.get("climb", True)))


def _multiples(where: str, names: list[str], spec: Mapping[str, Any], base: Overrides) -> list[list[float]]:
    factors = listing(f"{where}.multiples", spec.get("multiples"), float)
    if not factors:
        raise ConfigError(f"{where}: give points or multiples")
    start = base.get(names[0]) if len(names) == 1 else None
    if not isinstance(start, int | float):
        raise ConfigError(f"{where}: multiples need one key with a value in the configuration, got {names} and {start}")
    return [[float(f"{factor * start:.6g}")] for factor in factors]


def _within(names: list[str], point: list[Any], knobs: tuple[Knob, ...]) -> bool:
    ranges = {k.key: k for k in knobs}
    return all(
        n not in ranges or ranges[n].low * (1 - 1e-9) <= v <= ranges[n].high * (1 + 1e-9)
        for n, v in zip(names, point, strict=True)
    )


def _at(names: list[str], point: list[Any]) -> Overrides:
    return Overrides.of(dict(zip(names, point, strict=True)))


def _objective(where: str, content: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    name = str(content.get("objective", ""))
    if name not in objective.names() and ":" not in name:
        known = ", ".join(objective.names())
        raise ConfigError(f"{where}: objective must be one of {known} or module:function, got {name!r}")
    if ":" in name:
        _importable(f"{where}: objective", name)
    if name == objective.speed_to_level.__name__:
        number(f"{where}: objective_options.level, which {name} needs,", options.get("level"), Within())
    return name


def _importable(where: str, path: str) -> None:
    """Raises: ConfigError: if the path names no function that can be imported here."""
    module, _, function = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None) if module and function else None
    except Exception as error:  # the module is the user's: it may raise anything
        raise ConfigError(f"{where}: cannot import {module} for {path!r}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{where} must be module:function, and {path!r} names no function")
