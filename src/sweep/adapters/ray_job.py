"""`RayHost`: our side of a process that `sweep.adapters.ray_launcher` started, and its end without remains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sweep.errors import EngineError

Result = TypeVar("Result")

FREE_SECONDS = 60.0
"""How long Ray may take to give the resources of a killed process back; 5 s were measured. Ours."""

CALL_SECONDS = 60.0
"""How long a host may take to answer before its node counts as lost. Ours."""


class RayHost:
    """The campaign's side of a launched process: `RuntimeHost` behind Ray, whose node may be lost."""

    def __init__(
        self,
        name: str,
        actor: Any,
        pid: int,
        owner: str,
        label: Mapping[str, Any] | None = None,
        command: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.label: Mapping[str, Any] = dict(label or {})
        self.command = command
        self.closed = False
        self._actor = actor
        self._owner = owner
        self._driver = (node_of(actor), pid)

    def send(self, command: Mapping[str, Any], answered: int = 0) -> None:
        """Queue a command for the process; messages up to `answered` are needed no more."""
        self._ask("send", None, dict(command), answered)

    def request_stop(self, trial_id: str, reason: str) -> None:
        """Let the process know that this trial shall stop."""
        self._ask("request_stop", None, trial_id, reason)

    def receive(self, after: int, wait_seconds: float) -> Sequence[Mapping[str, Any]]:
        """The messages numbered over `after`; `gone` if the node is lost."""
        lost = [{"type": "gone", "exit_code": None, "reason": "its node is lost", "number": after + 1}]
        return self._ask("receive", lost, after, wait_seconds, wait_seconds=wait_seconds)

    def read_log(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """The console from a byte offset on; nothing if the node is lost."""
        return self._ask("read_log", b"", offset, max_bytes)

    def close(self) -> None:
        """Kill the process and wait until its workers are gone and its resources are free. Safe to call again.

        Does nothing to a process that another driver has taken over.

        Raises:
            EngineError: if they are not within the time that they have.
        """
        if self.closed:
            return
        self.closed = True
        import ray

        if self._ask("owned_by", True, self._owner) is False:
            return
        self._ask("kill", [], self._owner)
        free = _freed(*self._driver)
        left: list[int] = self._ask("kill", [], self._owner)  # workers that Ray was about to start came up meanwhile
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
        if left or not free:
            raise EngineError(f"{self.name} did not end within {FREE_SECONDS:g} s; processes left on its node: {left}")

    def _ask(self, method: str, lost: Result, *arguments: object, wait_seconds: float = 0.0) -> Result:
        """The host's answer, `lost` if it has none to give any more."""
        import ray

        answer = getattr(self._actor, method).remote(*arguments)
        try:
            return ray.get(answer, timeout=CALL_SECONDS + wait_seconds)  # type: ignore[no-any-return]
        except ray.exceptions.RayTaskError:
            raise  # the host lives and its method failed
        except ray.exceptions.RayError:  # actor, node, object or answer lost: Ray has an error for each
            return lost


def node_of(actor: Any) -> str:
    """IP address of the node that the actor runs on."""
    from ray._private.state import state

    return str(state.actor_table(actor._actor_id.hex())["Address"]["IPAddress"])


def _freed(node: str, driver_pid: int) -> bool:
    """Whether the job of this driver holds neither placement groups nor live actors, waiting for it.

    Ray's public state API answers only beside a dashboard, hence the table that it reads. Ids of placement groups
    and actors end with the id of their job.
    """
    from ray._private.state import state
    from ray.util import placement_group_table

    until = time.monotonic() + FREE_SECONDS
    while time.monotonic() < until:
        jobs = {j["JobID"] for j in state.job_table() if (j["DriverIPAddress"], j["DriverPid"]) == (node, driver_pid)}
        groups = [g for i, g in placement_group_table().items() if i[-8:] in jobs and g["state"] != "REMOVED"]
        actors = [a for i, a in state.actor_table(None).items() if i[-8:] in jobs and a["State"] != "DEAD"]
        if not groups and not actors:
            return True
        time.sleep(0.1)
    return False
