"""`sweep/free_gib_min`: the least free memory on any device during the step, training and rollout together.

`refuse_without` is the guard before a trial: nothing starts on a device that is nearly full.

A thread in each training worker looks at the device that the rollout shares with it: what other processes hold counts
as used, which is what an allocation will meet.
"""

from __future__ import annotations

import threading
from typing import Any

LOOK_SECONDS = 0.1
"""Ten looks a second cost nothing measurable; phases of a step last longer."""
_GIB = 1024.0**3
_watches: dict[int, _FreeMemoryWatch] = {}


class _FreeMemoryWatch(threading.Thread):
    def __init__(self, device: int) -> None:
        super().__init__(daemon=True, name=f"free-memory-{device}")
        self._device = device
        self._least = float("inf")
        self._lock = threading.Lock()

    def run(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        import torch

        free_bytes, _ = torch.cuda.mem_get_info(self._device)
        with self._lock:
            self._least = min(self._least, free_bytes / _GIB)

    def take(self) -> float:
        """The least since the last call, GiB."""
        self._look()
        with self._lock:
            least, self._least = self._least, float("inf")
        return least


def free_gib_min(worker: Any) -> float:
    """Runs in a training worker: the least free memory of its device since the last call, GiB."""
    import torch

    device = torch.cuda.current_device()
    if device not in _watches:
        _watches[device] = _FreeMemoryWatch(device)
        _watches[device].start()
    return _watches[device].take()


class MemoryShort(ValueError):
    """A device has less memory free than a trial must find; verl's processes are as sound as before."""


def free_now_gib(worker: Any) -> float:
    """Runs in a training worker: the free memory of its device, GiB; the host's where there is no device."""
    import psutil
    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info(torch.cuda.current_device())[0]) / _GIB
    return float(psutil.virtual_memory().available) / _GIB


def refuse_without(trainer: Any, min_free_gib: float | None) -> None:
    """Nothing, if every device of the trainer has so much memory free while the rollout sleeps. None asks nothing.

    Raises:
        MemoryShort: naming the ranks whose device has less.
    """
    if min_free_gib is None:
        return
    free = trainer.call_workers(free_now_gib)
    short = [f"{gib:.1f} GiB on the device of rank {rank}" for rank, gib in enumerate(free) if gib < min_free_gib]
    if short:
        raise MemoryShort(
            f"too little memory is free to start a trial, wanted {min_free_gib:g} GiB: {', '.join(short)}"
        )


def metrics(trainer: Any) -> dict[str, float]:
    """The metric over all devices of the trainer, nothing where there are none."""
    from verl.utils.device import get_device_name

    if get_device_name() != "cuda":
        return {}
    return {"sweep/free_gib_min": min(trainer.call_workers(free_gib_min))}
