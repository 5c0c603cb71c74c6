"""What NVML says of this node's GPUs at one time: `GpuReading`, `GpuUser`, `NvmlReader`. Having none is an answer.

A value that a device does not report is None; nothing here raises for lack of one. No CUDA context is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweep.adapters.ray_host import MAILBOX_VARIABLE
from sweep.health.hardware import GpuSample
from sweep.health.pcie import Link, busy_pct

GIB = float(2**30)

UNKNOWN_LINK = Link()

KB_PER_MB = 1000.0


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A process on the GPU. `runtime` is the name of the runtime it belongs to, empty for anybody else's, None if the
    process cannot be seen from here, as in some containers."""

    pid: int
    used_gib: float | None = None
    runtime: str | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one time, `unix_seconds` by its node's clock. Memory is the whole device's, whoever uses it."""

    unix_seconds: float
    index: int
    uuid: str = ""
    name: str = ""
    total_gib: float | None = None
    free_gib: float | None = None
    utilisation_pct: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    pcie_received_mb_per_s: float | None = None
    pcie_sent_mb_per_s: float | None = None
    link: Link = UNKNOWN_LINK
    users: tuple[GpuUser, ...] = ()

    @property
    def pcie_pct(self) -> float | None:
        """Percent of the link used by its busier direction; None without both counters and a known link."""
        if self.pcie_received_mb_per_s is None or self.pcie_sent_mb_per_s is None:
            return None
        return busy_pct(self.pcie_received_mb_per_s, self.pcie_sent_mb_per_s, self.link)

    def sample(self, began_at: float, gpu: int | None = None) -> GpuSample:
        """What the hardware rules look at, timed from `began_at` on, under the trial's own number of the GPU."""
        return GpuSample(
            seconds=self.unix_seconds - began_at,
            gpu=self.index if gpu is None else gpu,
            utilisation_pct=self.utilisation_pct,
            total_gib=self.total_gib,
            free_gib=self.free_gib,
            pcie_pct=self.pcie_pct,
            link_degraded=self.link.degraded,
        )


class NvmlReader:
    """Called, it reads every GPU of the node; `problem` says why there is none or what could not be read.

    NVML is opened at the first call and stays open: opening it anew takes up to seconds on some drivers. The PCIe
    counters are means over 20 ms, for which each of the two keeps the caller waiting; `pcie=False` leaves them out.
    """

    def __init__(self, *, pcie: bool = True, clock: Callable[[], float] = time.time) -> None:
        self.problem = ""
        self._pcie = pcie
        self._clock = clock
        self._nvml: Any = None

    def __call__(self) -> tuple[GpuReading, ...]:
        """The GPUs in NVML's order."""
        if not self._open():
            return ()
        nvml, found, problems = self._nvml, [], []
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.problem = f"the NVIDIA driver stopped answering: {error}"
            return ()
        for index in range(count):
            try:
                found.append(self._read(index, nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError as error:
                problems.append(f"gpu {index}: {error}")
        self.problem = "; ".join(problems) or ("" if found else "the NVIDIA driver sees no GPU")
        return tuple(found)

    def close(self) -> None:
        """Let NVML go. Safe to call again."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _open(self) -> bool:
        if self._nvml is not None:
            return True
        try:
            import pynvml
        except ImportError:
            self.problem = "the package nvidia-ml-py is not installed"
            return False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.problem = f"no NVIDIA driver answers: {error}"
            return False
        self._nvml = pynvml
        return True

    def _read(self, index: int, gpu: Any) -> GpuReading:
        nvml = self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, gpu)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, gpu)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
        received, sent = (
            (
                self._ask(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_RX_BYTES),
                self._ask(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_TX_BYTES),
            )
            if self._pcie
            else (None, None)
        )
        return GpuReading(
            unix_seconds=self._clock(),
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(gpu)),
            name=_text(nvml.nvmlDeviceGetName(gpu)),
            total_gib=memory and memory.total / GIB,
            free_gib=memory and memory.free / GIB,
            utilisation_pct=rates and float(rates.gpu),
            power_watts=None if power is None else power / 1000,
            power_limit_watts=None if limit is None else limit / 1000,
            pcie_received_mb_per_s=None if received is None else received / KB_PER_MB,
            pcie_sent_mb_per_s=None if sent is None else sent / KB_PER_MB,
            link=self._link(gpu),
            users=self._users(gpu),
        )

    def _link(self, gpu: Any) -> Link:
        nvml = self._nvml
        return Link(
            generation=self._ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu),
            width=self._ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
            max_generation=self._ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
            max_width=self._ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        )

    def _users(self, gpu: Any) -> tuple[GpuUser, ...]:
        running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, gpu) or ()
        return tuple(
            GpuUser(p.pid, None if p.usedGpuMemory is None else p.usedGpuMemory / GIB, runtime_of(p.pid))
            for p in running
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, None if the device has none: a slice of a GPU or a container lacks some."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def runtime_of(pid: int) -> str | None:
    """Name of the runtime that the process belongs to; empty if it is anybody else's, None if it cannot be seen.

    A process that set its title has overwritten its own environment, so its ancestors are asked too.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        lineage = [process, *process.parents()]
    except (psutil.Error, OSError):
        return None
    return next((name for member in lineage if (name := _mailbox(member))), "")


def _mailbox(process: Any) -> str:
    import psutil

    try:
        return str(process.environ().get(MAILBOX_VARIABLE, ""))
    except (psutil.Error, OSError):
        return ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
