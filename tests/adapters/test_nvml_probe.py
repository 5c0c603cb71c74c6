"""The NVML probe: without a GPU it says so; with a fake NVML it reads every kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sweep.adapters import nvml_probe
from sweep.adapters.nvml_probe import Device, Reading, leased_memory, read
from sweep.ports import DeviceMemory

GIB = 2**30


class FakeError(Exception):
    """NVML's error in the fake."""


@dataclass
class FakeMemory:
    total: int
    used: int
    free: int


class FakeNvml:
    """A fake of the NVML calls that the probe makes: plain GPUs, one cut into slices, one that cannot be read."""

    NVMLError = FakeError

    def __init__(self, *gpus: str) -> None:
        self.gpus = gpus
        self.open = False

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if self.gpus[index] == "broken":
            raise FakeError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        if handle == "old":
            raise FakeError("Not Supported")
        return (1, 1) if handle == "sliced" else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, place: int) -> str:
        if place == 2:
            raise FakeError("Not Found")
        return f"slice{place}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> FakeMemory:
        return FakeMemory(80 * GIB, 3 * GIB, 77 * GIB)

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"H200"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return f"GPU-{handle}"


def install(monkeypatch: pytest.MonkeyPatch, nvml: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)


def test_devices_are_read_in_order_in_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml("a", "old")
    install(monkeypatch, nvml)
    found = read()
    assert found == Reading(
        (Device(0, "H200", "GPU-a", 80.0, 3.0, 77.0), Device(1, "H200", "GPU-old", 80.0, 3.0, 77.0))
    )
    assert not nvml.open


def test_a_gpu_that_is_cut_is_read_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml("sliced"))
    assert [d.uuid for d in read().devices] == ["GPU-slice0", "GPU-slice1"]


def test_a_gpu_that_cannot_be_read_is_named_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml("broken", "a"))
    found = read()
    assert [d.index for d in found.devices] == [1]
    assert found.problem == "gpu 0: GPU is lost"


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [("1", ["GPU-b"]), ("GPU-a,1", ["GPU-a", "GPU-b"]), ("", []), (None, ["GPU-a", "GPU-b"]), ("7", [])],
)
def test_the_memory_is_that_of_the_leased_devices(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, uuids: list[str]
) -> None:
    install(monkeypatch, FakeNvml("a", "b"))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert leased_memory() == {uuid: DeviceMemory(3.0, 77.0) for uuid in uuids}


def test_a_missing_package_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert "nvidia-ml-py" in read().problem and read().devices == ()


def test_this_machine_is_read_without_an_error_and_says_what_is_missing() -> None:
    found = read()
    assert found.devices or found.problem


@pytest.mark.gpu
def test_a_real_gpu_reports_memory_that_adds_up() -> None:
    found = nvml_probe.read()
    if not found.devices:
        pytest.skip(f"no GPU here: {found.problem}")
    for device in found.devices:
        assert 0 < device.free_gib <= device.total_gib
        assert device.used_gib + device.free_gib == pytest.approx(device.total_gib, rel=0.05)
