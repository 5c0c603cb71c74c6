"""Answers for `diagnose.metrics`: curves through the diagnosis, planned configurations through the run length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.failure import Retry
from sweep.health.consequence import consequence
from sweep.health.diagnosis import Diagnosis, diagnose
from sweep.health.evidence import RunFacts
from sweep.health.finding import Finding, Severity
from sweep.health.limits import Limits
from sweep.health.metric_table import MetricTable
from sweep.health.run_length import run_length

from ..expansion import metric_rows

RETRY = {
    Retry.SAME: "same_config",
    Retry.RESUME: "resume_checkpoint",
    Retry.AFTER_FIX: "after_env_fix",
    Retry.NEW_CONFIG: "new_config",
    Retry.NO: "none",
}
"""How the cases spell what a retry needs."""


def curves(given: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnosis of the rows, with what else the case says about the run."""
    facts = RunFacts(
        config=given.get("config") or {},
        units=given.get("unit") or given.get("units") or {},
        gpu_total_gib=given.get("gpu_total_gb"),
        host_total_gib=given.get("host_total_gb"),
        save_interval_steps=given.get("save_interval"),
    )
    limits = Limits(guard_free_gib=float(given.get("guard_free_gb", Limits().guard_free_gib)))
    return describe(diagnose(MetricTable.from_rows(metric_rows(given)), facts, limits))


def planned(given: Mapping[str, Any]) -> dict[str, Any]:
    """The run length that a configuration and a dataset give."""
    settings = dict(override.lstrip("+").split("=", 1) for override in given["overrides"])
    limits = Limits(plateau_steps=int(given.get("plateau_window", Limits().plateau_steps)))
    found = run_length(settings, int(given["dataset_rows"]), int(given["requested_trial_steps"]), limits)
    return describe_findings(found, found[0] if found else None)


def describe(diagnosis: Diagnosis) -> dict[str, Any]:
    """The answer of a diagnosis."""
    return describe_findings(diagnosis.findings, diagnosis.leading)


def describe_findings(findings: tuple[Finding, ...], leading: Finding | None) -> dict[str, Any]:
    """The answer of findings of which one leads."""
    answer: dict[str, Any] = {
        "verdict": leading.code.name if leading else "OK",
        "severity": (leading.severity if leading else Severity.INFO).value,
        "codes": [f.code.name for f in findings],
        "moves": [(m.way.value, m.knob) for f in findings for m in f.direction],
        "text": _prose(leading) if leading else "",
        "notes": [_prose(f) for f in findings],
        "computed": {name: value for f in (*findings, *([leading] if leading else [])) for name, value in f.figures},
    }
    if leading is not None:
        outcome = consequence(leading)
        answer |= {
            "first_bad_step": leading.first_step,
            "first_step": leading.first_step,
            "last_step": leading.last_step,
            "metric": leading.metric,
            "confidence": leading.confidence.value,
            "scope": leading.scope,
            "trial_state": outcome.fate.value,
            "retry": RETRY[outcome.retry],
        }
    return answer


def _prose(finding: Finding) -> str:
    moves = "; ".join(str(move) for move in finding.direction)
    return f"{finding.code.value}. {finding.metric}: {finding.seen}. {finding.advice}. {moves}"


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "metric_rows": curves,
    "metric_segments": curves,
    "config": planned,
}
