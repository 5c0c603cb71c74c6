"""`describe`: the kind of machine that a process runs on, as times depend on it. Runs inside the engines' processes."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Say "NVIDIA H200, 32 x AMD EPYC 9654": the GPUs that the process sees, its host's CPUs."""
    return ", ".join([*_gpus(), f"{os.cpu_count()} x {_processor()}"])


def _gpus() -> list[str]:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [f"{len(names)} x {names[0]}" if len(names) > 1 else names[0]] if names else []


def _processor() -> str:
    """The processor's name; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()
