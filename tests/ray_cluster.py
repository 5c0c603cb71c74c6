"""What is free on the Ray cluster of this process, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable


def free_gpus() -> float:
    """Logical GPUs that nobody holds."""
    import ray

    return float(ray.available_resources().get("GPU", 0.0))


def free_resources() -> dict[str, float]:
    """CPUs and GPUs that nobody holds."""
    import ray

    found = ray.available_resources()
    return {name: found.get(name, 0.0) for name in ("CPU", "GPU")}


def everything_is_free() -> bool:
    """Whether nobody holds a CPU or a GPU of the cluster."""
    import ray

    free, total = ray.available_resources(), ray.cluster_resources()
    return all(free.get(name, 0.0) == total[name] for name in ("CPU", "GPU"))


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
