"""Answers for `doctor`: a log, with what the case says beside it, through the doctor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.failure import FailureClass
from sweep.health.doctor import Diagnosis, Evidence, diagnose_log

from .diagnose_metrics import RETRY

CLASSES = {FailureClass.TEARDOWN_NOISE: "TEARDOWN"}
"""Classes that the cases spell otherwise."""

NUMBERS = {"max_utilization": "max_util"}
"""Names of ours for numbers that the cases spell otherwise."""

SPELLINGS = {
    "NCCL_TIMEOUT": ("COLLECTIVE_TIMEOUT", "NCCL_HANG"),
    "NCCL_ERROR": ("NCCL_FAILURE", "NCCL_SYSTEM_ERROR"),
    "EXPANDABLE_SEGMENTS": ("EXPANDABLE_SEGMENTS_CONFLICT", "ALLOC_CONF_CONFLICT"),
    "DISK_FULL": ("NO_SPACE", "DISK_SPACE", "ENOSPC"),
    "SHARED_MEMORY_SHORT": ("SHM_FULL", "SHM_TOO_SMALL", "SHM_SHORT"),
    "PORT_IN_USE": ("ADDRESS_IN_USE", "PORT_CONFLICT", "EADDRINUSE_PORT"),
    "GPU_HARDWARE": ("GPU_ECC", "ECC_ERROR", "GPU_LOST", "XID_ERROR", "GPU_FAULT"),
    "CUDA_DEVICE_ASSERT": ("DEVICE_SIDE_ASSERT", "ILLEGAL_MEMORY_ACCESS", "CUDA_ILLEGAL_ACCESS", "CUDA_ASSERT"),
    "CUDA_MISMATCH": ("CUDA_DRIVER_MISMATCH", "DRIVER_MISMATCH", "NO_KERNEL_IMAGE"),
    "NON_FINITE_SAMPLING": ("NON_FINITE", "NAN_PROBS", "NAN_LOGITS"),
    "LIBRARY_MISSING": ("ABI_MISMATCH", "MISSING_LIBRARY", "UNDEFINED_SYMBOL", "LIBRARY_MISMATCH"),
    "FLASH_ATTENTION_MISSING": ("FLASH_ATTN", "FLASH_ATTN_MISSING", "FLASH_ATTN_ABI", "ABI_MISMATCH"),
    "MODULE_MISSING": ("MISSING_MODULE", "IMPORT_ERROR", "MISSING_DEPENDENCY"),
    "MODEL_NOT_FOUND": ("HF_DOWNLOAD", "MODEL_DOWNLOAD", "HF_HUB", "MODEL_MISSING"),
    "LOGGER_LOGIN": ("WANDB_LOGIN", "WANDB_AUTH", "LOGGER_FAILURE"),
    "RESOURCES_PENDING": ("RAY_PENDING", "PLACEMENT_GROUP_PENDING", "CPU_SHORTAGE", "RAY_RESOURCES"),
    "SILENT_START": ("HANG_AT_START", "TRANSFER_QUEUE_HANG", "STARTUP_HANG", "SILENT_HANG"),
    "SILENT_HANG": ("HANG", "SILENT"),
    "GPUS_MISSING": ("NOT_ENOUGH_GPUS", "NO_GPU"),
    "PREEMPTED": ("TIME_LIMIT", "JOB_PREEMPTED", "SLURM_CANCELLED", "WALLTIME"),
    "NODE_DIED": ("NODE_FAILURE", "RAY_NODE_DIED"),
    "CHECKPOINT_UNREADABLE": ("CHECKPOINT_CORRUPT", "CORRUPT_CHECKPOINT", "TRUNCATED_CHECKPOINT"),
    "EMPTY_DATALOADER": ("DATALOADER_EMPTY",),
    "BATCH_NOT_DIVISIBLE": ("BATCH_DIVISIBILITY", "NOT_DIVISIBLE"),
    "REWARD_NOT_IMPLEMENTED": ("REWARD_MISSING", "REWARD_FN_MISSING"),
    "ENGINE_DEATH": ("VLLM_ENGINE_DEAD", "ENGINE_DEAD", "ENGINE_CORE_FAILED"),
    "KILLED_BY_SIGNAL": ("SIGKILL", "HOST_OOM", "OOM_KILLED"),
    "QUEUE_CROSSTALK": ("TQ_CROSSTALK", "TRANSFER_QUEUE_CROSSTALK", "RAY_CROSSTALK"),
    "TEARDOWN_FAILURE": ("TEARDOWN_NOISE",),
}
"""Our code to other names of the same failure."""

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
        "codes": [found.code, *SPELLINGS.get(found.code, ())],
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
        silent_seconds=given.get("silent_s", given.get("silent_seconds")),
    )


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"log_text": log_text, "trial_events": log_text}
