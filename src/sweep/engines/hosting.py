"""What an engine needs of a cluster, as protocols: `Launcher` starts processes with a mailbox, `Host` is one.

`sweep.adapters.ray_launcher` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Host(Protocol):
    """A process started on some node of a cluster, with a mailbox that it shares with us.

    `label` is what it was launched with; `command` the last one that an earlier driver sent, if there was one.
    """

    name: str
    label: Mapping[str, Any]
    command: Mapping[str, Any] | None

    def send(self, command: Mapping[str, Any], answered: int = 0) -> None:
        """Queue a command for the process; messages up to the number `answered` are needed no more."""
        ...

    def request_stop(self, trial_id: str, reason: str) -> None:
        """Let the process know that this trial shall stop."""
        ...

    def receive(self, after: int, wait_seconds: float) -> Sequence[Mapping[str, Any]]:
        """The messages with a `number` over `after`, waiting for the first; `gone` when process or node are lost.

        They stay until a command says that they are needed no more: a driver that takes over reads them again.
        """
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

    def nodes(self) -> Sequence[Mapping[str, float]]:
        """What each living node has in all, named as Ray names it."""
        ...

    def launch(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        gpus: int = 0,
        label: Mapping[str, Any] | None = None,
    ) -> Host:
        """A started process whose mailbox has this name, with so many GPUs of one node its own until it is closed.

        One with a label may outlive its driver: `left` finds it.

        Raises:
            EngineError: if no node takes it, or the GPUs do not come free.
        """
        ...

    def left(self, prefix: str) -> Sequence[Host]:
        """The processes with names that begin so which an earlier driver left running; this one has them now."""
        ...

    def call(self, function: Callable[..., Result], *arguments: object, gpus: int = 0) -> Result:
        """What the function returns on a node with GPUs, so many of them its own meanwhile.

        Raises:
            EngineError: if they do not come free.
        """
        ...

    def close(self) -> None:
        """End every process and the cluster, if it was started here. Safe to call again."""
        ...
