"""A fake of the package `pynvml`: GPUs as a test wants them, and `NVMLError` for what a device does not report."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """`gpus` are mappings of what is reported; what is missing in one raises. Counts `opened` and `closed`."""

    NVMLError = NVMLError
    NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_TX_BYTES = "received", "sent"

    def __init__(self, *gpus: dict[str, Any], no_driver: bool = False) -> None:
        super().__init__(gpus=list(gpus), no_driver=no_driver, opened=0, closed=0, dead=False)

    def nvmlInit(self) -> None:
        if self.no_driver:
            raise NVMLError("NVML Shared Library Not Found")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        if self.dead:
            raise NVMLError("GPU is lost")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.gpus[index]

    def nvmlDeviceGetPcieThroughput(self, gpu: dict[str, Any], counter: str) -> Any:
        return _reported(gpu, counter)

    def __getattr__(self, name: str) -> Callable[[dict[str, Any]], Any]:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda gpu: _reported(gpu, name.removeprefix("nvmlDeviceGet"))


def _reported(gpu: dict[str, Any], what: str) -> Any:
    if what not in gpu:
        raise NVMLError("Not Supported")
    return gpu[what]


def fake_gpu(total_gib: float = 80.0, free_gib: float = 30.0, **changes: Any) -> dict[str, Any]:
    """A GPU that reports everything, PCIe 4 at 16 lanes, without processes."""
    return {
        "UUID": "GPU-0",
        "Name": b"Fake A100",
        "MemoryInfo": SimpleNamespace(total=total_gib * GIB, free=free_gib * GIB),
        "UtilizationRates": SimpleNamespace(gpu=87),
        "PowerUsage": 250_000,
        "EnforcedPowerLimit": 500_000,
        "received": 22_500_000,
        "sent": 1_200_000,
        "CurrPcieLinkGeneration": 4,
        "CurrPcieLinkWidth": 16,
        "MaxPcieLinkGeneration": 4,
        "MaxPcieLinkWidth": 16,
        "ComputeRunningProcesses": [],
        **changes,
    }
