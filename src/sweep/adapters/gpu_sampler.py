"""`GpuSampler`: reads the GPUs of the node it runs on at a steady pace, and keeps the readings until they are fetched.

Plain Python: a thread here, or behind a Ray actor on another node. It judges nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from sweep.adapters.gpu_reading import GpuReading

INTERVAL_SECONDS = 2.0
"""Between readings. Source: S0 section 1.2."""

KEPT_READINGS = 20_000
"""Readings kept for a driver that does not fetch them: an hour and more of eight GPUs. Older ones are dropped. Ours."""


class GpuSampler:
    """Starts with its first reading done, so that `problem` is known at once. `read` may carry a `problem` itself."""

    def __init__(
        self,
        read: Callable[[], Sequence[GpuReading]] | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read or _nvml_reader()
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: deque[GpuReading] = deque(maxlen=KEPT_READINGS)
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpu-sampler")
        self._thread.start()

    def take(self) -> list[GpuReading]:
        """The readings since the last call, oldest first."""
        with self._lock:
            found = list(self._kept)
            self._kept.clear()
        return found

    def problem(self) -> str:
        """Why there are no readings, or which GPU does not answer; empty if all is well."""
        return str(getattr(self._read, "problem", ""))

    def close(self) -> None:
        """Stop reading. Safe to call again."""
        self._ended.set()
        self._thread.join()
        close = getattr(self._read, "close", None)
        if close is not None:
            close()

    def _run(self) -> None:
        due = self._clock() + self._interval_seconds
        while not self._ended.wait(max(0.0, due - self._clock())):
            self._look()
            due = max(due + self._interval_seconds, self._clock())

    def _look(self) -> None:
        found = self._read()
        with self._lock:
            self._kept.extend(found)


def _nvml_reader() -> Callable[[], Sequence[GpuReading]]:
    from sweep.adapters.gpu_reading import NvmlReader

    return NvmlReader()
