"""`sweeps/*.yaml` to `Stage`: one function a section, each with a message that names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS
from sweep.core.overrides import Overrides
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
from sweep.errors import ConfigError
from sweep.stages import objective

MOST_KNOBS = 2
"""Source: S0 section 2, one or two parameters a step."""

VLLM = "vllm"
"""verl's name of the rollout that can be measured alone; also its rollout on GPUs where nothing else is asked for."""

RULES = ("bracket", "eta", "article", "ladder", "search", "confirm")
KEYS = frozenset(
    {"knobs", "fixed", "rule", "bracket", "eta", "ladder", "search", "objective", "objective_options", "constraints"}
    | {"budget", "follows", "cost_key", "measure", "rounds", "beside"}
)
T = TypeVar("T")


def stage_from(name: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts) -> Stage:
    """The stage that a file in `sweeps/` describes, its ladders laid over the base configuration.

    Raises:
        ConfigError: for an unknown key, rule, objective or a value that cannot work.
    """
    where = f"sweeps/{name}.yaml"
    _known_keys(where, content, KEYS)
    knobs = tuple(_built(Knob, f"{where}: knobs.{n}", k) for n, k in content.get("knobs", {}).items())
    if content.get("rule") == "confirm" and knobs:
        raise ConfigError(f"{where}: a confirmation has no knobs, got {len(knobs)}")
    if content.get("rule") != "confirm" and not 1 <= len(knobs) <= MOST_KNOBS:
        raise ConfigError(f"{where}: a stage has one or two knobs, got {len(knobs)}")
    measure = _measure(where, content, base, model)
    stage = Stage(
        name=name,
        knobs=knobs,
        rule=_rule(where, content, base, model, knobs),
        objective=_objective(where, content),
        budget=_budget(where, content, measure),
        fixed=Overrides.of(parse_settings(content.get("fixed", []), f"{where}: fixed")),
        constraints=tuple(
            _built(Constraint, f"{where}: constraints.{n}", c) for n, c in content.get("constraints", {}).items()
        ),
        cost_key=content.get("cost_key"),
        follows=tuple(content.get("follows", ())),
        measure=measure,
        objective_options=Overrides.of(content.get("objective_options", {})),
    )
    if stage.budget.trials < 2:
        raise ConfigError(f"{where}: budget.trials must be at least 2 (the baseline and a candidate)")
    return stage


def parse_settings(lines: Sequence[str], where: str) -> list[tuple[str, object]]:
    """verl settings written as Hydra overrides, as (key, value) pairs; a leading `+` stays on the key.

    Raises:
        ConfigError: for a line that is not `key=value`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    pairs: list[tuple[str, object]] = []
    for line in lines:
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
    budget = _built(StageBudget, f"{where}: budget", content.get("budget", {}))
    rounds = _built(Rounds, f"{where}: rounds", content.get("rounds", {}))
    if rounds.measured < 1 or rounds.warmup < 0:
        raise ConfigError(f"{where}: rounds.measured must be at least 1 and rounds.warmup 0, got {rounds}")
    return budget if measure is Measure.TRAINING else rounds.of(budget)


def _rule(where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]) -> Rule:
    match content.get("rule"):
        case "bracket":
            return _bracket_rule(where, content, knobs)
        case "confirm":
            return _confirm_rule(f"{where}: beside", content.get("beside") or {})
        case "eta":
            return _built(EtaRule, f"{where}: eta", content.get("eta", {}))
        case "article":
            return _built(EtaRule, f"{where}: eta", {**content.get("eta", {}), "literal": True})
        case "ladder":
            return _ladder_rule(f"{where}: ladder", content.get("ladder", {}), base, model, knobs)
        case "search":
            return _search_rule(f"{where}: search", content.get("search", {}))
        case str() as path if ":" in path:
            return CustomRule(path)
        case other:
            raise ConfigError(f"{where}: rule must be one of {', '.join(RULES)} or module:function, got {other!r}")


def _bracket_rule(where: str, content: Mapping[str, Any], knobs: tuple[Knob, ...]) -> BracketRule:
    given = dict(content.get("bracket", {}))
    if "eta" in content:
        given["article"] = _built(EtaRule, f"{where}: eta", content["eta"])
    rule = _built(BracketRule, f"{where}: bracket", given)
    for name, good, wanted in (
        ("most_points", rule.most_points >= 2, "at least 2"),
        ("moves", rule.moves >= 1, "at least 1"),
        (
            "first_factor",
            rule.first_factor is None or (rule.first_factor > 0 and rule.first_factor != 1),
            "positive, not 1",
        ),
        ("near_share", 0 <= rule.near_share < 1, "from 0 to 1"),
    ):
        if not good:
            raise ConfigError(f"{where}: bracket.{name} must be {wanted}, got {getattr(rule, name)}")
    for knob in knobs:
        if not knob.low < knob.high or (knob.log and knob.low <= 0):
            raise ConfigError(f"{where}: a bracket needs a range, got {knob.low:g} to {knob.high:g} for {knob.key}")
    return rule


def _confirm_rule(where: str, beside: Mapping[str, Any]) -> ConfirmRule:
    return ConfirmRule(
        tuple((name, Overrides.of(parse_settings(lines, f"{where}.{name}"))) for name, lines in beside.items())
    )


def _search_rule(where: str, content: Mapping[str, Any]) -> SearchRule:
    _known_keys(where, content, {"sampler", "start", "tie_margin"})
    start = tuple(Overrides.of(parse_settings(lines, f"{where}.start")) for lines in content.get("start", ()))
    return SearchRule(content.get("sampler", "TPESampler"), start, float(content.get("tie_margin", 0.02)))


def _ladder_rule(
    where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> LadderRule:
    _known_keys(where, content, {"ladders", "tie_margin", "rollback"})
    ladders = tuple(
        _ladder(f"{where}.ladders.{name}", name, spec, base, model, knobs)
        for name, spec in content.get("ladders", {}).items()
    )
    if not ladders:
        raise ConfigError(f"{where}: at least one ladder is needed")
    back = _built(Rollback, f"{where}.rollback", content["rollback"]) if content.get("rollback") else None
    if back is not None and back.series not in METRICS:
        raise ConfigError(f"{where}.rollback: series must be one of {', '.join(METRICS)}, got {back.series!r}")
    return LadderRule(ladders, float(content.get("tie_margin", 0.02)), back)


def _ladder(
    where: str, name: str, spec: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> Ladder:
    _known_keys(where, spec, {"keys", "points", "multiples", "climb", "clamp"})
    names = list(spec.get("keys", []))
    points = [list(p) for p in spec.get("points", [])] or _multiples(where, names, spec, base)
    for point in points:
        if len(point) != len(names):
            raise ConfigError(f"{where}: each point has one value for each of {names}, got {point}")
    kept = [p for p in points if _within(names, p, knobs)]
    if spec.get("clamp") == "memory" and model.gpu_gib and model.hidden_size:
        most = token_clamp(model.gpu_gib, model.hidden_size)
        kept = [p for p in kept if p[0] <= most]
    if not kept:
        raise ConfigError(f"{where}: no point lies within the knobs' ranges: {points}")
    rungs = tuple(Rung("/".join(f"{v:g}" if isinstance(v, float) else str(v) for v in p), _at(names, p)) for p in kept)
    return Ladder(name, rungs, bool(spec.get("climb", True)))


def _multiples(where: str, names: list[str], spec: Mapping[str, Any], base: Overrides) -> list[list[float]]:
    factors = spec.get("multiples", [])
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


def _objective(where: str, content: Mapping[str, Any]) -> str:
    name = str(content.get("objective", ""))
    if name not in objective.names() and ":" not in name:
        known = ", ".join(objective.names())
        raise ConfigError(f"{where}: objective must be one of {known} or module:function, got {name!r}")
    return name


def _built(kind: type[T], where: str, content: Mapping[str, Any]) -> T:
    _known_keys(where, content, {f.name for f in fields(kind)})  # type: ignore[arg-type]
    try:
        return kind(**content)
    except TypeError as error:
        raise ConfigError(f"{where}: {str(error).replace('__init__() ', '')}") from error


def _known_keys(where: str, content: Mapping[str, Any], known: frozenset[str] | set[str]) -> None:
    unknown = sorted(set(content) - known)
    if unknown:
        raise ConfigError(f"{where}: unknown key {', '.join(unknown)}; known: {', '.join(sorted(known))}")
