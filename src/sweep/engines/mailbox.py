"""`Mailbox`: a process's side of the line to the host that started it.

The host is a Ray actor of another job on the same cluster; its name comes in the environment. Without one, as in a
long run that a user starts by hand, nothing is reported and nothing is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

NAME_VARIABLE = "SWEEP_MAILBOX"
NAMESPACE = "sweep"
STARTED_VARIABLE = "SWEEP_STARTED_AT"
"""Set by the host: Unix time at which it started this process."""

TAKE_SECONDS = 30.0
"""How long one call waits for a command; then it asks again, so that a dead host is noticed. Ours."""


class Mailbox(Protocol):
    """Commands in, messages out."""

    def take(self, wait_seconds: float) -> dict[str, Any] | None:
        """The next command, None if none came in time."""
        ...

    def put(self, message: dict[str, Any]) -> None:
        """The message has reached the host on return."""
        ...

    def report_step(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> str:
        """Reports a step; returns why the trial shall stop after it, or the empty string."""
        ...


def trials(mailbox: Mailbox) -> Iterator[dict[str, Any]]:
    """The commands to run a trial, until the mailbox says that there are no more."""
    while (command := mailbox.take(TAKE_SECONDS)) is None or command["type"] != "end":
        if command is not None:
            yield command


class HostMailbox:
    """The host's Ray actor."""

    def __init__(self, name: str) -> None:
        import ray

        self._ray = ray
        self._host = ray.get_actor(name, namespace=NAMESPACE)

    def take(self, wait_seconds: float) -> dict[str, Any] | None:
        command: dict[str, Any] | None = self._ray.get(self._host.take.remote(wait_seconds))
        return command

    def put(self, message: dict[str, Any]) -> None:
        self._ray.get(self._host.put.remote(message))

    def report_step(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> str:
        message = {"type": "step", "id": trial_id, "step": step, "metrics": dict(metrics)}
        calls = [self._host.put.remote(message), self._host.stop_request.remote(trial_id)]
        return str(self._ray.get(calls)[1] or "")


class NoMailbox:
    """Nobody to report to."""

    def take(self, wait_seconds: float) -> dict[str, Any] | None:
        return {"type": "end"}

    def put(self, message: dict[str, Any]) -> None:
        """Nobody reads it."""

    def report_step(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> str:
        return ""


def open_mailbox() -> Mailbox:
    """The mailbox that the environment names."""
    name = os.environ.get(NAME_VARIABLE, "")
    return HostMailbox(name) if name else NoMailbox()


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, as Python floats; NaN and infinities stay what they are."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            continue
    return numbers
