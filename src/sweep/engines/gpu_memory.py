"""`GpuMemory`: what the GPUs hold that a cluster would lease now, and waiting until a runtime's share is free again.

It also refuses GPUs that are nearly full before anything starts (S0 section 4.2).

Without a probe, as on the CPU, nothing is held and nothing is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sweep.core import verl_keys as keys
from sweep.core.device_memory import MIN_FREE_GIB
from sweep.core.trial import Trial
from sweep.engines.hosting import Launcher
from sweep.errors import EngineError
from sweep.ports import DeviceMemory

MemoryProbe = Callable[[], Mapping[str, DeviceMemory]]
"""Run on a node: GPU id to memory, of the GPUs leased to the caller."""

LINGERING_GIB = 1.0
"""Memory that a GPU may hold above what it held before the runtime: a CUDA context is about half of it. Ours."""

FREE_SECONDS = 60.0
"""How long a killed process may keep GPU memory; the driver frees it within seconds. Ours."""


def least_free_gib(trial: Trial) -> float:
    """Free memory under which the trial may not start on a GPU."""
    asked = trial.overrides.get(keys.MIN_FREE_GIB)
    return float(asked) if isinstance(asked, int | float) else MIN_FREE_GIB


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

    def in_use(self, gpus: int, least_free_gib: float = 0.0) -> Mapping[str, float]:
        """GiB by GPU, of so many GPUs that are free to lease.

        Raises:
            EngineError: if they do not come free, or if one of them has less memory free than asked for.
        """
        found = {} if self._probe is None else self._launcher.call(self._probe, gpus=gpus)
        short = [f"{m.free_gib:.1f} GiB on {gpu}" for gpu, m in found.items() if m.free_gib < least_free_gib]
        if short:
            wanted = f"wanted {least_free_gib:g} GiB: {', '.join(short)}"
            raise EngineError(f"too little memory is free to start a trial, {wanted}")
        return {gpu: memory.used_gib for gpu, memory in found.items()}

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
