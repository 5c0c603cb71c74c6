"""One gloo process group on the CPU: verl would name the CPU's backend twice, which torch refuses."""

from __future__ import annotations

import verl.utils.distributed as verl_distributed

_start_group = verl_distributed.initialize_global_process_group_ray


def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
    """verl's function of that name with gloo as the default backend."""
    _start_group(timeout_second, backend or "cpu:gloo")


verl_distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
