"""A TransferQueue for each Ray job, so that trials can share a cluster.

TransferQueue finds its controller by one name in one fixed Ray namespace: the second trial on a cluster would attach
to the first one's queue and train on its samples. The namespace gets the id of the Ray job, which every process of a
verl run shares.

Source: TransferQueue 0.1.11, interface.py, `_init_from_existing` and `init`.
"""

from __future__ import annotations

import ray
import transfer_queue.interface as queue_interface

SHARED_NAMESPACE = "transfer_queue"


def own_namespace() -> str:
    """The namespace of this Ray job's queue."""
    return f"{SHARED_NAMESPACE}-{ray.get_runtime_context().get_job_id()}"


class _Delegate:
    """Whatever the wrapped object has, but for what a subclass defines itself."""

    def __init__(self, wrapped: object) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> object:
        return getattr(self._wrapped, name)


class _Ray(_Delegate):
    def get_actor(self, name: str, namespace: str | None = None) -> object:
        return ray.get_actor(name, namespace=own_namespace() if namespace == SHARED_NAMESPACE else namespace)


class _Controller(_Delegate):
    def options(self, **options: object) -> object:
        if options.get("namespace") == SHARED_NAMESPACE:
            options["namespace"] = own_namespace()
        return self._wrapped.options(**options)  # type: ignore[attr-defined]


queue_interface.ray = _Ray(ray)
queue_interface.TransferQueueController = _Controller(queue_interface.TransferQueueController)
