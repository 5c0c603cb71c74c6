"""Answers for `doctor`: a log, with what the case says beside it, through the doctor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.failure import FailureClass
from sweep.health.doctor import Diagnosis, Evidence, diagnose_log

from .diagnose_metrics import RETRY

OWNED = True

CLASSES = {FailureClass.TEARDOWN_NOISE: "TEARDOWN"}
"""Classes that the cases spell otherwise."""

NUMBERS = {"max_utilization": "max_util"}
"""Names of ours for numbers that the cases spell otherwise."""

GRANTED_CPUS = re.compile(r"CPUS?(?:_PER_TASK|_ON_NODE|_ALLOCATED)?$|^(?:granted|cgroup)_cpus$", re.IGNORECASE)


def log_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnosis of a log."""
    return describe(diagnose_log(str(given.get("text") or given.get("log_text") or ""), evidence(given)))


def describe(found: Diagnosis) -> dict[str, Any]:
    """The answer of a diagnosis."""
    numbers = {NUMBERS.get(name, name): value for name, value in found.computed.items()}
    return {
        "verdict": found.code,
        "code": found.code,
        "codes": [found.code],
        "class": CLASSES.get(found.failure_class, found.failure_class.name),
        "phase": found.phase,
        "root_line": found.cause_line,
        "retry": RETRY[found.retry],
        "max_retries": found.max_retries,
        "confidence": found.confidence.value,
        "trial_state": "COMPLETE" if found.counts_as_result else "FAIL",
        "counts_as_result": found.counts_as_result,
        "abort_sweep": found.abort_campaign,
        "resume_from": found.resume_from,
        "ordered_fixes": list(found.fix),
        "moves": [(direction.split()[0], key) for key, direction in found.moves.items()],
        "text": "; ".join((found.title, *found.fix)),
        "computed": numbers,
    }


def evidence(given: Mapping[str, Any]) -> Evidence:
    """What the case says beside the log, by whichever name."""
    env = given.get("env") or {}
    granted = next((int(value) for name, value in env.items() if GRANTED_CPUS.search(name) and "os." not in name), None)
    host = next((int(value) for name, value in env.items() if "cpu_count" in name or "host_cpus" in name), None)
    files = given.get("files") or given.get("checkpoints") or {}
    states = files if isinstance(files, Mapping) else dict.fromkeys(files, "complete")
    return Evidence(
        granted_cpus=granted,
        host_cpus=host,
        ray_version=env.get("ray"),
        checkpoints=tuple(name for name, state in states.items() if state == "complete"),
        total_steps=given.get("total_steps"),
        last_step=given.get("last_step", given.get("last_logged_step")),
        exit_code=given.get("rc", given.get("exit_code")),
    )


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"log_text": log_text, "trial_events": log_text}
