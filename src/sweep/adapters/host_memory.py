"""`read_host_memory`: the host's memory in the place of a GPU's, for engines that run on the CPU."""

from __future__ import annotations

import time

from sweep.adapters.gpu_reading import GIB, GpuReading


def read_host_memory() -> tuple[GpuReading, ...]:
    """One reading, numbered 0: what can be had without swapping counts as free."""
    import psutil

    memory = psutil.virtual_memory()
    return (
        GpuReading(
            unix_seconds=time.time(),
            index=0,
            name="host memory",
            total_gib=memory.total / GIB,
            free_gib=memory.available / GIB,
        ),
    )
