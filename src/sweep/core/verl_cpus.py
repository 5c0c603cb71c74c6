"""Logical CPUs that one verl reserves, and the fewest that its start is trusted with. Pure.

With fewer than it reserves verl waits for ever without a word.
"""

from __future__ import annotations

CPUS_PER_GPU = 3
"""Beside each GPU. Source: verl 0.9.1 single_controller/ray/base.py, `max_colocate_count`."""

QUEUE_CONTROLLER_CPUS = 1
"""Source: TransferQueue 0.1.11 controller.py; each storage unit takes one more."""

DEFAULT_QUEUE_UNITS = 8
"""Source: verl 0.9.1 trainer/config/transfer_queue/transfer_queue.yaml."""

UNIT_BACKEND = "SimpleStorage"
"""The queue's default backend, and the only one with storage units."""

GPU_HOST_FLOOR = 10
"""Below it a start on a GPU host is unproven. Source: an H200 host of 8 hung, with the default storage units, which
reserve 12; with one unit, which reserves 5, nobody has tried fewer than 10."""


def reserved(gpus: int, queue: int) -> int:
    """What Ray must have free: three for each GPU and the queue's."""
    return gpus * CPUS_PER_GPU + queue


def needed(gpus: int, queue: int, *, on_cpu: bool) -> int:
    """`reserved`, and on GPUs at least the floor."""
    return reserved(gpus, queue) if on_cpu else max(reserved(gpus, queue), GPU_HOST_FLOOR)


def of_queue(units: object, backend: object = None) -> int:
    """What TransferQueue reserves with these settings of verl; None is the default of either."""
    if backend not in (None, UNIT_BACKEND):
        return 0
    return QUEUE_CONTROLLER_CPUS + (units if isinstance(units, int) else DEFAULT_QUEUE_UNITS)
