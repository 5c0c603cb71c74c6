"""What NVML says of the GPUs of this node: `Reading`, `Device`, `read`, `leased_memory`. Having none is an answer.

It does not decide how much free memory is enough, and starts no CUDA context.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sweep.core.visible_gpus import visible
from sweep.ports import DeviceMemory

GIB = float(2**30)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG slice of one. Memory is the whole device's, whoever uses it."""

    index: int
    name: str
    uuid: str
    total_gib: float
    used_gib: float
    free_gib: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The devices in NVML's order; `problem` says why there is none, or which one could not be read."""

    devices: tuple[Device, ...] = ()
    problem: str = ""


def read() -> Reading:
    """What is there now; never raises."""
    try:
        import pynvml
    except ImportError:
        return Reading(problem="the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Reading(problem=f"no NVIDIA driver answers: {error}")
    try:
        return _read_all(pynvml)
    finally:
        pynvml.nvmlShutdown()


def leased_memory() -> dict[str, DeviceMemory]:
    """UUID to memory, of the GPUs that `CUDA_VISIBLE_DEVICES` leaves this process; of all if it is not set.

    Run it as a Ray task with GPUs: Ray sets the variable to what it leased to the task.
    """
    found = visible(read().devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {d.uuid: DeviceMemory(d.used_gib, d.free_gib) for d in found}


def _read_all(nvml: Any) -> Reading:
    found: list[Device] = []
    problems: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found += [_device(nvml, index, handle) for handle in _handles(nvml, index)]
        except nvml.NVMLError as error:
            problems.append(f"gpu {index}: {error}")
    return Reading(tuple(found), "; ".join(problems))


def _handles(nvml: Any, index: int) -> list[Any]:
    """The GPU itself, or its MIG slices if it is cut into some: the whole then reports nothing of use."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        enabled, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:
        return [gpu]
    if not enabled:
        return [gpu]
    slices = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place))
        except nvml.NVMLError:  # an empty place
            continue
    return slices


def _device(nvml: Any, index: int, handle: Any) -> Device:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        total_gib=memory.total / GIB,
        used_gib=memory.used / GIB,
        free_gib=memory.free / GIB,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
