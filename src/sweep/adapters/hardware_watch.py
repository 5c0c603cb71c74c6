"""`HardwareWatch`: the GPUs of every trial, wherever its processes run, for as long as it runs.

Readings come from a sampler on each node that has GPUs (`sweep.adapters.gpu_nodes`); a trial's are those of the GPUs
that its runtime's processes use. They go to `hardware.jsonl` in the trial's folder, which
`sweep.health.gpu_trace.read_trace` reads back, and to whoever wants metrics. It judges nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

from sweep.adapters.gpu_reading import GpuReading
from sweep.adapters.gpu_sampler import INTERVAL_SECONDS
from sweep.adapters.hardware_records import record, serves, system_metrics
from sweep.health.hardware import GpuSample

log = logging.getLogger(__name__)

TRACE_FILE = "hardware.jsonl"


class Sampler(Protocol):
    """`GpuSampler`, here or on another node."""

    def take(self) -> Sequence[GpuReading]: ...

    def problem(self) -> str: ...

    def close(self) -> None: ...


Offer = Callable[[str, int, Mapping[str, float]], None]
"""Trial id, Unix time in milliseconds, and metrics under MLflow's names; must not raise."""


@dataclass(slots=True)
class _Followed:
    """A trial that is watched, and its samples so far."""

    trial_id: str
    began_at: float
    file: TextIO
    runtime: Callable[[], str] | None
    samples: list[GpuSample] = field(default_factory=list)


class HardwareWatch:
    """One for a campaign. `samplers` by the name of their node; a node without GPUs is said once and left alone.

    GPUs are numbered over all nodes, in the nodes' order: on a single node as NVML numbers them.
    """

    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        *,
        offer: Offer | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._samplers = dict(samplers)
        self._offer = offer
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._first_gpu: dict[str, int] = {}
        self._gpus = 0
        self._followed: dict[str, _Followed] = {}
        self._said: set[str] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Fetch readings every interval, in a thread, until `close`."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="hardware-watch")
        self._thread.start()

    def follow(self, trial_id: str, folder: Path, began_at: float, runtime: Callable[[], str] | None = None) -> None:
        """From now on the trial's readings are kept.

        `runtime` gives the name of the runtime that serves it, empty until one does. Without it the trial is taken
        to be the only one, with every GPU that any runtime uses.

        Raises:
            OSError: if nothing can be written there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._drop(trial_id)
            file = (folder / TRACE_FILE).open("w", encoding="utf-8")
            self._followed[trial_id] = _Followed(trial_id, began_at, file, runtime)

    def leave(self, trial_id: str) -> tuple[GpuSample, ...]:
        """The trial's samples, after a last look; it is watched no more. Empty if it was not."""
        self.look()
        with self._lock:
            followed = self._drop(trial_id)
        return () if followed is None else tuple(followed.samples)

    def look(self) -> None:
        """Fetch what the samplers have and hand it on. Called by the thread; a test or a loop may call it too."""
        with self._lock:
            for node, sampler in self._samplers.items():
                readings = sampler.take()
                if node not in self._first_gpu and readings:
                    self._first_gpu[node] = self._gpus
                    self._gpus += max(reading.index for reading in readings) + 1
                self._say(node, sampler.problem())
                for reading in readings:
                    self._hand_on(node, reading)

    def absent(self) -> tuple[str, ...]:
        """What could not be watched, in words, by node; each is also logged once."""
        return tuple(sorted(self._said)) or (() if self._samplers else ("no node of the cluster has GPUs",))

    def close(self) -> None:
        """Stop, end the samplers and close every trace. Safe to call again."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            for trial_id in list(self._followed):
                self._drop(trial_id)
            for sampler in self._samplers.values():
                sampler.close()
            self._samplers.clear()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self.look()

    def _hand_on(self, node: str, reading: GpuReading) -> None:
        gpu = self._first_gpu[node] + reading.index
        for trial in list(self._followed.values()):
            name = trial.runtime() if trial.runtime is not None else None
            if name == "" or reading.unix_seconds < trial.began_at or not serves(reading, name or ""):
                continue
            sample = reading.sample(trial.began_at, gpu)
            trial.samples.append(sample)
            try:
                trial.file.write(json.dumps(record(sample, node, reading)) + "\n")
                trial.file.flush()
            except OSError as error:  # a view never fails a trial
                self._drop(trial.trial_id)
                log.warning("hardware of trial %s is not recorded any more: %s", trial.trial_id, error)
            if self._offer is not None:
                self._offer(trial.trial_id, int(reading.unix_seconds * 1000), system_metrics(gpu, reading))

    def _drop(self, trial_id: str) -> _Followed | None:
        followed = self._followed.pop(trial_id, None)
        if followed is not None:
            followed.file.close()
        return followed

    def _say(self, node: str, problem: str) -> None:
        text = f"GPUs of {node} are not watched: {problem}"
        if problem and text not in self._said:
            self._said.add(text)
            log.warning(text)
