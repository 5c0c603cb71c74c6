"""`visible`: the GPUs that `CUDA_VISIBLE_DEVICES` leaves a process. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

_SHORTEST_UUID = 5
"""Letters of a UUID that name a GPU at all: `GPU-` alone names none. Ours."""


class Gpu(Protocol):
    """A GPU as NVML numbers it."""

    @property
    def index(self) -> int: ...

    @property
    def uuid(self) -> str: ...


AnyGpu = TypeVar("AnyGpu", bound=Gpu)


def visible(gpus: Sequence[AnyGpu], names: str | None) -> tuple[AnyGpu, ...]:
    """Those that the variable's value leaves, in its order; all if it is not set. It takes indices and the beginnings
    of UUIDs, and what follows an entry that is neither is not seen."""
    if names is None:
        return tuple(gpus)
    found: list[AnyGpu] = []
    for name in [part.strip() for part in names.split(",") if part.strip()]:
        match = next((gpu for gpu in gpus if _is_named(gpu, name)), None)
        if match is None:
            break
        found.append(match)
    return tuple(found)


def _is_named(gpu: Gpu, name: str) -> bool:
    return name == str(gpu.index) or (len(name) >= _SHORTEST_UUID and gpu.uuid.startswith(name))
