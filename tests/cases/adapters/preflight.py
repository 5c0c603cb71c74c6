"""Answers for `preflight`: the base configuration with a case's overrides and facts, composed and checked.

A case asks about the settings and facts that it names: findings about other settings of the base are not its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from sweep.engines.verl.compose import Composed, compose
from sweep.errors import ConfigError
from sweep.health.preflight import (
    Facts,
    ModelFacts,
    PreflightFinding,
    Severity,
    check_together,
    keys,
    preflight,
    verdict,
)

from ..loading import base_overrides

OWNED = True

FACTS = {
    "dataset_rows": ("dataset_rows", "rows", keys.TRAIN_FILES),
    "rows_after_filter": ("rows_after_filter", "rows_filtered", keys.TRAIN_FILES),
    "trial_steps": ("trial_steps", "requested_trial_steps", keys.TOTAL_STEPS),
    "gpu_gib": ("gpu_gb", "gpu_gib", "gpu_memory_gb", keys.ROLLOUT_UTIL),
    "gpu_count": ("gpus", "gpu_count", "n_gpus_available", keys.GPUS_PER_NODE),
    "logical_cpus": ("cpus", "logical_cpus", "cpu_count", "num_cpus", keys.RAY_CPUS),
    "host_memory_gib": ("host_memory_gb", "ram_gb", "host_gb", keys.AGENT_WORKERS),
    "free_disk_gib": ("free_disk_gb", "disk_free_gb", "free_gb", keys.CHECKPOINT_DIR),
    "ray_temp_dir": ("ray_temp_dir", "ray_tmp", "temp_dir", keys.RAY_TMP),
    "dataset_columns": ("columns", "dataset_columns", keys.TRAIN_FILES),
    "data_sources": ("data_sources", "data_source", keys.TRAIN_FILES),
    "reward_error": ("reward_error", keys.REWARD_PATH),
}
"""Fact to the names that a case may give it, and last the setting that it is about."""

SHAPE = {
    "attention_heads": ("num_attention_heads", "attention_heads", "heads"),
    "kv_heads": ("num_key_value_heads", "kv_heads", "key_value_heads"),
    "hidden_size": ("hidden_size",),
    "layers": ("num_hidden_layers", "layers"),
    "vocabulary": ("vocab_size", "vocabulary"),
    "max_positions": ("max_position_embeddings", "max_positions"),
}
"""Part of a model's shape to the names that a case may give it."""

SETS = ("dataset_columns", "data_sources")
NOT_GIVEN = re.compile(r"([\w.]+) not given")
NO_SUCH_KEY = re.compile(r"no (\w+) keys? at all")
BILLION = 1e9


def config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The findings on one configuration."""
    own = list(given.get("overrides", ()))
    try:
        composed = compose([*_kept(base_overrides(), str(given.get("note", ""))), *own])
    except ConfigError as problem:
        return {"verdict": "ERROR", "code": "CONFIG_ERROR", "codes": ["CONFIG_ERROR"], "text": str(problem)}
    facts, about = _facts(given, composed)
    asked = {_key(line) for line in own} | about | set(NOT_GIVEN.findall(str(given.get("note", ""))))
    return describe([found for found in preflight(composed.config, facts) if _asked(found, asked, given)])


def sweep(given: Mapping[str, Any]) -> dict[str, Any]:
    """The findings on the trials of a search together."""
    names = list(given["sweep"])
    combinations = product(*given["sweep"].values())
    lines = [
        [*given.get("base_overrides", ()), *(f"{name}={value}" for name, value in zip(names, values, strict=True))]
        for values in combinations
    ]
    trials = {str(number): compose([*base_overrides(), *overrides]).config for number, overrides in enumerate(lines)}
    return describe(list(check_together(trials)))


def describe(findings: list[PreflightFinding]) -> dict[str, Any]:
    """The answer of findings, worst first."""
    numbers: dict[str, Any] = {}
    for finding in reversed(findings):
        numbers |= finding.computed
    told = [finding for finding in findings if finding.severity is not Severity.INFO] or findings
    unknown = [finding for finding in findings if finding.code == "UNKNOWN_KEY" and finding.nearest]
    return {
        "verdict": verdict(findings).value.upper(),
        "code": told[0].code if told else None,
        "codes": [finding.code for finding in findings],
        "fix": list(told[0].nearest) if told else [],
        "suggestions": {finding.keys[0]: finding.nearest[0] for finding in unknown},
        "text": "; ".join(_prose(finding) for finding in told),
        "notes": [_prose(finding) for finding in findings],
        "computed": numbers,
    } | {name: numbers[name] for name in ("limit", "runtime_check") if name in numbers}


def _prose(finding: PreflightFinding) -> str:
    return f"{finding.what}: {finding.why}; {' or '.join(finding.nearest)}"


def _asked(finding: PreflightFinding, asked: set[str], given: Mapping[str, Any]) -> bool:
    """Whether the finding is about a setting that the case names; by its last part where the case shortens it."""
    if NO_SUCH_KEY.search(str(given.get("note", ""))):
        return True
    short = {key for key in asked if "." not in key}
    return any(key in asked or key.rpartition(".")[2] in short for key in finding.keys)


def _kept(base: list[str], note: str) -> Iterator[str]:
    """The base overrides without those that the note says are not there."""
    absent, words = set(NOT_GIVEN.findall(note)), NO_SUCH_KEY.findall(note)
    for line in base:
        key = _key(line)
        if key.rpartition(".")[2] not in absent and key not in absent and not any(word in key for word in words):
            yield line


def _key(line: str) -> str:
    return line.partition("=")[0].lstrip("+~")


def _facts(given: Mapping[str, Any], composed: Composed) -> tuple[Facts, set[str]]:
    """The facts that the case states, and the settings that they are about."""
    flat = {**given, **{k: v for part in given.values() if isinstance(part, Mapping) for k, v in part.items()}}
    known: dict[str, Any] = {}
    about: set[str] = set()
    for name, (*spellings, key) in FACTS.items():
        found = next((flat[spelling] for spelling in spellings if spelling in flat), None)
        if found is not None:
            known[name] = frozenset([found] if isinstance(found, str) else found) if name in SETS else found
            about.add(key)
    shape = {
        name: next(flat[spelling] for spelling in spellings if spelling in flat)
        for name, spellings in SHAPE.items()
        if any(spelling in flat for spelling in spellings)
    }
    if "params_b" in flat:
        shape["parameters"] = flat["params_b"] * BILLION
    facts = Facts(
        given=composed.given,
        added=composed.added,
        unknown_keys=composed.unknown,
        model=ModelFacts(**shape),
        **known,
    )
    return facts, about


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"config": config, "sweep": sweep}
