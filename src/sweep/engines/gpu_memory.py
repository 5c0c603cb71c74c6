"""`GpuMemory`: what the GPUs hold that a cluster would lease now, and waiting until a runtime's share is free again.

Without a probe, as on the CPU, nothing is held and nothing is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sweep.engines.hosting import Launcher
from sweep.errors import EngineError

MemoryProbe = Callable[[], Mapping[str, float]]
"""Run on a node: GPU id to GiB in use, of the GPUs leased to the caller."""

LINGERING_GIB = 1.0
"""Memory that a GPU may hold above what it held before the runtime: a CUDA context is about half of it. Ours."""

FREE_SECONDS = 60.0
"""How long a killed process may keep GPU memory; the driver frees it within seconds. Ours."""


class GpuMemory:
    """Asks through the launcher, so that only GPUs are looked at that nobody has leased."""

    def __init__(
        self,
        launcher: Launcher,
        probe: MemoryProbe | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._probe = probe
        self._sleep = sleep
        self._clock = clock

    def in_use(self, gpus: int) -> Mapping[str, float]:
        """GiB by GPU, of so many GPUs that are free to lease.

        Raises:
            EngineError: if they do not come free.
        """
        return {} if self._probe is None else self._launcher.call(self._probe, gpus=gpus)

    def await_free(self, gpus: int, before: Mapping[str, float]) -> None:
        """Returns once they hold no more than before, but for a CUDA context.

        Raises:
            EngineError: if the memory is not given back in time.
        """
        until = self._clock() + FREE_SECONDS
        while self._probe is not None:
            now = self.in_use(gpus)
            left = {gpu: used for gpu, used in now.items() if used > before.get(gpu, used) + LINGERING_GIB}
            if not left:
                return
            if self._clock() >= until:
                held = ", ".join(f"{used:.1f} GiB on {gpu}" for gpu, used in left.items())
                raise EngineError(f"gpu memory was not given back within {FREE_SECONDS:g} s: {held}")
            self._sleep(1.0)
