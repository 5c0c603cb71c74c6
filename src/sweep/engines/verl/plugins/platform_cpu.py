"""`CpuPlatform`: verl on a machine without accelerators, chosen by `VERL_PLATFORM=cpu`.

Ray's "GPU" stays the unit of placement, so a CPU cluster is started with as many logical GPUs as there shall be
workers. Memory figures are zero, since no device has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _CpuModule(ModuleType):
    """The part of `torch.cuda`'s surface that verl calls, over `torch.cpu`."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return False

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_name(self, device: object = None) -> str:
        return "CPU"

    def set_device(self, device: object) -> None:
        """One device only."""

    def synchronize(self, device: object = None) -> None:
        """Calls return when they are done."""

    def empty_cache(self) -> None:
        """There is no cache of device memory."""

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """There are no peaks of device memory."""

    def memory_allocated(self, device: object = None) -> int:
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return 0, 0

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)


_MODULE = _CpuModule("sweep_cpu_device")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Every operation that needs a device is one on the CPU, or nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never detected, only asked for: a GPU machine must not fall back to it

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """One device only."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Calls return when they are done."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The CPU's allocator has none."""

    def empty_cache(self) -> None:
        """There is no cache of device memory."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
