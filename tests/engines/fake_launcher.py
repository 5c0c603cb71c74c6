"""A fake cluster at the launcher's port: `FakeLauncher` and its `FakeHost`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class FakeHost:
    """A fake host: says what `say` gave it, notes what it is told, is gone when it is told to end."""

    def __init__(
        self, name: str, label: Mapping[str, Any] | None = None, command: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.label = label or {}
        self.command = command
        self.commands: list[Mapping[str, Any]] = []
        self.messages: list[Mapping[str, Any]] = []
        self.console = b"console"
        self.closed = False

    def say(self, **message: object) -> None:
        self.messages.append({**message, "number": len(self.messages) + 1})

    def send(self, command: Mapping[str, Any], answered: int = 0) -> None:
        self.commands.append(command)
        if command["type"] == "end":
            self.say(type="gone", exit_code=0, reason="")

    def request_stop(self, trial_id: str, reason: str) -> None:
        raise AssertionError("nobody stops a trial here")

    def receive(self, after: int, wait_seconds: float) -> Sequence[Mapping[str, Any]]:
        return [m for m in self.messages if m["number"] > after]

    def read_log(self, offset: int, max_bytes: int = 0) -> bytes:
        return self.console[offset:]

    def close(self) -> None:
        self.closed = True


class FakeLauncher:
    """A fake launcher: a cluster of the given nodes, or of one of the given size; calls run here, where the fake
    memory is. `before` are hosts that an earlier driver left."""

    def __init__(self, *nodes: Mapping[str, float], **resources: float) -> None:
        self.found = list(nodes) or [resources]
        self.before: list[FakeHost] = []
        self.hosts: list[FakeHost] = []
        self.launched: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self.gpus_called: list[int] = []
        self.leased: list[int] = []
        self.closed = False

    def nodes(self) -> Sequence[Mapping[str, float]]:
        return self.found

    def left(self, prefix: str) -> Sequence[FakeHost]:
        return [host for host in self.before if host.name.startswith(prefix)]

    def launch(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        gpus: int = 0,
        label: Mapping[str, Any] | None = None,
    ) -> FakeHost:
        self.launched.append((tuple(arguments), dict(environment)))
        self.leased.append(gpus)
        self.hosts.append(FakeHost(name, label))
        return self.hosts[-1]

    def call(self, function: Callable[..., Any], *arguments: object, gpus: int = 0) -> Any:
        self.gpus_called.append(gpus)
        return function(*arguments)

    def close(self) -> None:
        self.closed = True
