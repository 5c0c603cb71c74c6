"""What an engine needs of a cluster, as protocols: `Launcher` starts processes with a mailbox, `Host` is one.

`sweep.adapters.ray_launcher` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Host(Protocol):
    """A process started on some node of a cluster, with a mailbox that it shares with us."""

    name: str

    def send(self, command: Mapping[str, Any]) -> None:
        """Queue a command for the process."""
        ...

    def request_stop(self, trial_id: str, reason: str) -> None:
        """Let the process know that this trial shall stop."""
        ...

    def receive(self, after: int, wait_seconds: float) -> Sequence[Mapping[str, Any]]:
        """The messages with a `number` over `after`, waiting for the first; `gone` when process or node are lost."""
        ...

    def read_log(self, offset: int, max_bytes: int = ...) -> bytes:
        """The process's console from a byte offset on."""
        ...

    def close(self) -> None:
        """Kill the process; on return it and its workers are gone and their resources free. Safe to call again.

        Raises:
            EngineError: if they are not.
        """
        ...


class Launcher(Protocol):
    """Starts Python processes on a cluster, which is connected to or started on first use."""

    def resources(self) -> Mapping[str, float]:
        """The cluster's totals, named as Ray names them."""
        ...

    def launch(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, gpus: int = 0) -> Host:
        """A started process whose mailbox has this name, with so many GPUs of one node its own until it is closed.

        Raises:
            EngineError: if no node takes it, or the GPUs do not come free.
        """
        ...

    def call(self, function: Callable[..., Result], *arguments: object, gpus: int = 0) -> Result:
        """What the function returns on a node, with so many GPUs of its own meanwhile.

        Raises:
            EngineError: if they do not come free.
        """
        ...

    def close(self) -> None:
        """End every process and the cluster, if it was started here. Safe to call again."""
        ...
