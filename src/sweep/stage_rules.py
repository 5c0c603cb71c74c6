"""The rule of a stage file, `rule:` with the section of its name, to a `Rule`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS
from sweep.core.overrides import Overrides, bare
from sweep.core.plan import ModelFacts
from sweep.core.stage import (
    BracketRule,
    ConfirmRule,
    CustomRule,
    EtaRule,
    Knob,
    Ladder,
    LadderRule,
    Rollback,
    Rule,
    Rung,
    SearchRule,
)
from sweep.core.token_budget import token_clamp
from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.settings_text import parse_settings
from sweep.yaml_values import built, fitting, importable, known_keys, listing, number, section

RULES = ("bracket", "eta", "article", "ladder", "search", "confirm")
ROUNDED = 1e-9
"""Share of a range's end by which a value may pass it, as written numbers are rounded. Ours."""
TIE_MARGIN = Within(low=0, high=1, open_high=True)
MEMORY = "memory"
"""The only clamp of a ladder: what the article's formula allows."""


def rule_from(
    where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> Rule:
    """The rule that a stage file asks for, with the section of its name.

    The sections of rules that are not asked for are read as well, so that no setting is without effect and unsaid.

    Raises:
        ConfigError: for an unknown rule, key or a value that cannot work.
    """
    _read_all(where, content)
    match content.get("rule"):
        case "bracket":
            return _bracket_rule(where, content, knobs)
        case "confirm":
            return _confirm_rule(f"{where}: beside", section(f"{where}: beside", content.get("beside")))
        case "eta" | "article" as name:
            _refuse_other_knobs(where, name, knobs)
            return built(EtaRule, f"{where}: eta", content.get("eta"), literal=name == "article")
        case "ladder":
            return _ladder_rule(
                f"{where}: ladder", section(f"{where}: ladder", content.get("ladder")), base, model, knobs
            )
        case "search":
            return _search_rule(f"{where}: search", section(f"{where}: search", content.get("search")))
        case str() as path if ":" in path:
            importable(f"{where}: rule", path)
            return CustomRule(path)
        case other:
            raise ConfigError(f"{where}: rule must be one of {', '.join(RULES)} or module:function, got {other!r}")


def _read_all(where: str, content: Mapping[str, Any]) -> None:
    """Raises: ConfigError: if a section of any rule has an unknown key or a value of a kind that it never takes."""
    built(EtaRule, f"{where}: eta", content.get("eta"), literal=False)
    built(BracketRule, f"{where}: bracket", content.get("bracket"), article=None)
    _search_rule(f"{where}: search", section(f"{where}: search", content.get("search")))
    _confirm_rule(f"{where}: beside", section(f"{where}: beside", content.get("beside")))
    _ladder_section(f"{where}: ladder", section(f"{where}: ladder", content.get("ladder")))


def _refuse_other_knobs(where: str, rule: str, knobs: tuple[Knob, ...]) -> None:
    """Raises: ConfigError: if the rule, which walks batch sizes, is to walk anything else."""
    if [k.key for k in knobs] != [keys.MINI_BATCH]:
        found = ", ".join(k.key for k in knobs) or "none"
        raise ConfigError(
            f"{where}: rule {rule} walks one knob, {keys.MINI_BATCH}, got {found}; "
            "rule: bracket walks any, search and ladder as well"
        )


def _bracket_rule(where: str, content: Mapping[str, Any], knobs: tuple[Knob, ...]) -> BracketRule:
    article = built(EtaRule, f"{where}: eta", content["eta"], literal=False) if "eta" in content else None
    rule = built(BracketRule, f"{where}: bracket", content.get("bracket"), article=article)
    if rule.first_factor == 1:
        raise ConfigError(f"{where}: bracket.first_factor must be positive, not 1, got {rule.first_factor}")
    if keys.MINI_BATCH in [k.key for k in knobs[1:]]:
        raise ConfigError(f"{where}: {keys.MINI_BATCH} moves the train batch: a bracket must have it as first knob")
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


@dataclass(frozen=True, slots=True)
class _LadderSpec:
    """A ladder as its section says it, not yet laid over a configuration."""

    name: str
    keys: list[str]
    points: list[list[Any]]
    multiples: list[float]
    climb: bool
    clamped: bool


def _ladder_section(where: str, content: Mapping[str, Any]) -> tuple[list[_LadderSpec], float, Rollback | None]:
    """The section's ladders, tie margin and rollback."""
    known_keys(where, content, {"ladders", "tie_margin", "rollback"})
    ladders = [
        _ladder_spec(f"{where}.ladders.{name}", name, section(f"{where}.ladders.{name}", spec))
        for name, spec in section(f"{where}.ladders", content.get("ladders")).items()
    ]
    back = built(Rollback, f"{where}.rollback", content["rollback"]) if content.get("rollback") else None
    if back is not None and back.series not in METRICS:
        raise ConfigError(f"{where}.rollback: series must be one of {', '.join(METRICS)}, got {back.series!r}")
    return ladders, number(f"{where}.tie_margin", content.get("tie_margin", 0.02), TIE_MARGIN), back


def _ladder_spec(where: str, name: str, spec: Mapping[str, Any]) -> _LadderSpec:
    known_keys(where, spec, {"keys", "points", "multiples", "climb", "clamp"})
    if spec.get("clamp") not in (None, MEMORY):
        raise ConfigError(f"{where}.clamp must be {MEMORY} or left out, got {spec['clamp']!r}")
    names = listing(f"{where}.keys", spec.get("keys"))
    points = listing(f"{where}.points", spec.get("points"), list)
    factors = listing(f"{where}.multiples", spec.get("multiples"), float)
    if not points and not factors:
        raise ConfigError(f"{where}: give points or multiples")
    for point in points:
        if len(point) != len(names):
            raise ConfigError(f"{where}: each point has one value for each of {names}, got {point}")
    climb: bool = fitting(f"{where}.climb", bool, spec.get("climb", True))
    return _LadderSpec(name, names, points, factors, climb, spec.get("clamp") == MEMORY)


def _ladder_rule(
    where: str, content: Mapping[str, Any], base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]
) -> LadderRule:
    specs, tie_margin, back = _ladder_section(where, content)
    if not specs:
        raise ConfigError(f"{where}: at least one ladder is needed")
    ladders = tuple(_ladder(f"{where}.ladders.{spec.name}", spec, base, model, knobs) for spec in specs)
    return LadderRule(ladders, tie_margin, back)


def _ladder(where: str, spec: _LadderSpec, base: Overrides, model: ModelFacts, knobs: tuple[Knob, ...]) -> Ladder:
    names, points = spec.keys, spec.points or _multiples(where, spec, base)
    ranged = {k.key for k in knobs}
    for point in points:
        for key, value in zip(names, point, strict=True):
            if key in ranged:
                number(f"{where}.points: {key}", value, Within())
    kept = [p for p in points if _within(names, p, knobs)]
    if not kept:
        raise ConfigError(f"{where}: no point lies within the knobs' ranges: {points}")
    note = ""
    if spec.clamped:
        kept, note = _in_memory(where, names, kept, model), _unknown_memory(model)
    rungs = tuple(Rung("/".join(f"{v:g}" if isinstance(v, float) else str(v) for v in p), _at(names, p)) for p in kept)
    return Ladder(spec.name, rungs, spec.climb, note)


def _in_memory(where: str, names: list[str], points: list[list[Any]], model: ModelFacts) -> list[list[Any]]:
    """The points whose token budget the article's formula allows; all where GPU or model is not known."""
    column = next((i for i, name in enumerate(names) if bare(name) == keys.MAX_BATCHED_TOKENS), None)
    if column is None:
        raise ConfigError(f"{where}.clamp bounds {keys.MAX_BATCHED_TOKENS}, which is not among its keys {names}")
    if not model.gpu_gib or not model.hidden_size:
        return points
    most = token_clamp(model.gpu_gib, model.hidden_size)
    kept = [p for p in points if number(f"{where}.points: {names[column]}", p[column], Within()) <= most]
    if not kept:
        raise ConfigError(
            f"{where}: memory of {model.gpu_gib:g} GB allows {most:g} tokens, less than every point: {points}; "
            "give smaller points, or leave clamp out"
        )
    return kept


def _unknown_memory(model: ModelFacts) -> str:
    """Why the clamp leaves no rung out on a GPU; empty if it is known how much there is, or without a GPU."""
    sizes = {"gpu_gib": model.gpu_gib, "hidden_size": model.hidden_size}
    missing = ", ".join(f"model.{name}" for name, size in sizes.items() if not size)
    if not missing or not model.needs_gpu:
        return ""
    return f"the token budget's memory clamp left no rung out, whatever its size: it needs {missing}, found null"


def _multiples(where: str, spec: _LadderSpec, base: Overrides) -> list[list[Any]]:
    start = base.get(spec.keys[0]) if len(spec.keys) == 1 else None
    if not isinstance(start, int | float):
        raise ConfigError(
            f"{where}: multiples need one key with a value in the configuration, got {spec.keys} and {start}"
        )
    return [[float(f"{factor * start:.6g}")] for factor in spec.multiples]


def _within(names: list[str], point: list[Any], knobs: tuple[Knob, ...]) -> bool:
    ranges = {k.key: k for k in knobs}
    return all(n not in ranges or in_range(ranges[n], v) for n, v in zip(names, point, strict=True))


def in_range(knob: Knob, value: float) -> bool:
    """Whether the knob may take the value, but for the rounding of written numbers."""
    return knob.low - ROUNDED * abs(knob.low) <= value <= knob.high + ROUNDED * abs(knob.high)


def _at(names: list[str], point: list[Any]) -> Overrides:
    return Overrides.of(dict(zip(names, point, strict=True)))
