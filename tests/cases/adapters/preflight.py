"""Answers for `preflight`: the base configuration with a case's overrides and facts, composed and checked.

A case asks about the settings and facts that it names: findings about other settings of the base are not its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from sweep.core import verl_keys as keys
from sweep.engines.verl.compose import Composed, compose
from sweep.errors import ConfigError
from sweep.health.preflight import (
    Facts,
    ModelFacts,
    PreflightFinding,
    Severity,
    check_together,
    preflight,
    verdict,
)

from ..loading import base_overrides

FACTS = {
    "dataset_rows": ("dataset_rows", "rows", keys.TRAIN_FILES),
    "rows_after_filter": ("rows_after_filter", "rows_filtered", keys.TRAIN_FILES),
    "trial_steps": ("trial_steps", "requested_trial_steps", keys.TOTAL_STEPS),
    "gpu_gib": ("gpu_gb", "gpu_gib", "gpu_memory_gb", keys.MEMORY_UTILIZATION),
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

SPELLINGS = {
    "TRAIN_NOT_MULTIPLE_OF_MINI": ("TRAIN_NOT_DIVISIBLE_BY_MINI", "BATCH_REMAINDER", "TRAIN_MINI_REMAINDER"),
    "TRAIN_NOT_MULTIPLE_OF_GPUS": ("REAL_TRAIN_BATCH", "TRAIN_NOT_DIVISIBLE_BY_GPUS", "TRAIN_BATCH_NOT_DIVISIBLE"),
    "MINI_NOT_MULTIPLE_OF_RANKS": ("MINI_NOT_DIVISIBLE_BY_DP", "MINI_NOT_MULTIPLE_OF_DP", "MINI_DP"),
    "MICRO_NOT_DIVIDING_MINI": ("MICRO_NOT_DIVISOR", "MINI_NOT_MULTIPLE_OF_MICRO"),
    "LOG_PROB_MICRO_NOT_DIVIDING": ("LOG_PROB_MICRO", "LOGPROB_MICRO_NOT_DIVIDING"),
    "TP_NOT_DIVIDING_HEADS": ("HEADS_NOT_DIVISIBLE", "HEADS_NOT_DIVISIBLE_BY_TP", "TP_HEADS"),
    "SP_NOT_DIVIDING_HEADS": ("HEADS_NOT_DIVISIBLE", "SP_HEADS", "ULYSSES_HEADS", "HEADS_NOT_DIVISIBLE_BY_SP"),
    "SP_NEEDS_REMOVE_PADDING": ("ULYSSES_NEEDS_REMOVE_PADDING", "SP_WITHOUT_REMOVE_PADDING", "REMOVE_PADDING_REQUIRED"),
    "TOKENS_LT_SEQS": ("BATCHED_TOKENS_LT_SEQS", "MAX_TOKENS_LT_SEQS", "TOKEN_BUDGET_LT_SEQS"),
    "BUDGET_RAISED_BY_VERL": ("BATCHED_TOKENS_LT_MODEL_LEN", "BATCHED_TOKENS_LT_LEN", "TOKENS_LT_MODEL_LEN"),
    "SEQUENCE_GT_MODEL_LEN": ("SEQ_GT_MODEL_LEN", "MODEL_LEN_EXCEEDED", "LENGTH_GT_MODEL_LEN"),
    "LENGTHS_DISAGREE": ("RESPONSE_LENGTH_MISMATCH", "LENGTH_MISMATCH"),
    "KL_COEF_WITHOUT_KL": ("KL_COEF_UNUSED", "KL_COEF_DEAD", "DEAD_KNOB", "KL_OFF"),
    "KL_TWICE": ("DOUBLE_KL", "KL_BOTH", "BOTH_KL_TERMS"),
    "DEAD_KEY": ("DEAD_KNOB", "IGNORED_KEY", "UNUSED_KEY", "KEY_IGNORED"),
    "LEGACY_KEY_IGNORED": ("LEGACY_KEY", "LEGACY_REWARD_KEY", "IGNORED_KEY"),
    "EPOCHS_END_EARLY": ("TOTAL_EPOCHS_TOO_SMALL", "EPOCHS_TOO_FEW", "RUN_ENDS_EARLY", "STEPS_UNREACHABLE"),
    "WARMUP_OUTLASTS_TRIAL": ("WARMUP_GE_STEPS", "WARMUP_TOO_LONG", "LR_WARMUP"),
    "CPUS_SHORT": ("NOT_ENOUGH_CPUS", "TOO_FEW_CPUS", "CPU_SHORTAGE", "RAY_CPUS"),
    "GPUS_MISSING": ("NOT_ENOUGH_GPUS", "TOO_FEW_GPUS"),
    "DISK_SHORT": ("DISK_FULL", "DISK_SPACE", "NOT_ENOUGH_DISK"),
    "COLUMNS_MISSING": ("MISSING_COLUMN", "MISSING_COLUMNS", "PARQUET_COLUMNS"),
    "REWARD_NOT_LOADABLE": ("REWARD_IMPORT", "REWARD_FN_IMPORT", "REWARD_FUNCTION"),
    "REWARD_NOT_IMPLEMENTED": ("NO_REWARD_FUNCTION", "REWARD_MISSING", "UNKNOWN_DATA_SOURCE"),
    "ROLLOUT_NAME_MISSING": ("MISSING_MANDATORY", "MISSING_ROLLOUT_NAME", "MANDATORY_MISSING"),
    "UTILIZATION_HIGH": ("GPU_UTIL_HIGH", "MEMORY_UTILIZATION_HIGH"),
    "TRAINING_STATE_EXCEEDS_GPU": ("OOM_EXPECTED", "MEMORY_ESTIMATE_EXCEEDED", "TRAINING_STATE_EXCEEDS"),
    "GROUP_OF_ONE": ("GRPO_N_1", "GROUP_SIZE_ONE", "ADV_NEEDS_N"),
    "EMPTY_DATALOADER": ("BATCH_GT_DATASET", "TRAIN_GT_ROWS"),
    "DATALOADER_MAY_BE_EMPTY": ("EMPTY_DATALOADER",),
}
"""Our code to other names of the same finding."""

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
    trials = {str(number): compose([*base_overrides(), *overrides]) for number, overrides in enumerate(lines)}
    found = list(check_together({number: trial.config for number, trial in trials.items()}))
    for trial in trials.values():
        facts = Facts(given=trial.given, added=trial.added, unknown_keys=trial.unknown, swept=frozenset(names))
        found += [f for f in preflight(trial.config, facts) if set(f.keys) & set(names) and f not in found]
    return describe(sorted(found, key=lambda finding: finding.severity.rank))


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
        "codes": [name for finding in findings for name in (finding.code, *SPELLINGS.get(finding.code, ()))],
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
