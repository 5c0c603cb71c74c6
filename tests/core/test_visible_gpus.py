"""What `CUDA_VISIBLE_DEVICES` leaves a process."""

from __future__ import annotations

from types import SimpleNamespace

from sweep.core.visible_gpus import visible


def test_visible_devices_are_taken_by_index_or_uuid_in_their_order() -> None:
    gpus = [SimpleNamespace(index=i, uuid=f"GPU-{name}") for i, name in enumerate(("aaaa", "bbbb", "cccc"))]
    assert visible(gpus, None) == tuple(gpus)
    assert visible(gpus, "2,0") == (gpus[2], gpus[0])
    assert visible(gpus, "GPU-bb") == (gpus[1],)
    assert visible(gpus, "1,7,0") == (gpus[1],)
    assert visible(gpus, "") == () == visible(gpus, "-1") == visible(gpus, "GPU-")
