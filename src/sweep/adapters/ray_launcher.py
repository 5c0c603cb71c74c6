"""`RayLauncher`: starts processes with a mailbox on a Ray cluster, its own or a given one; `ClusterSettings`.

A launched process is a Ray driver of its own: the cluster sees one job for each, places its workers where the
resources are and takes them back when the process is gone. Everything else comes home through `RayHost`, so driver
and nodes need no common file system.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sweep.adapters.ray_host import RuntimeHost
from sweep.errors import ConfigError, EngineError

Result = TypeVar("Result")

NAMESPACE = "sweep"
"""Ray namespace of the hosts; trainers look their mailbox up in it."""

LOGICAL_CPUS = 16
"""CPUs that a local cluster without GPUs claims for each process; Ray only counts them.

verl's TransferQueue takes 9 at its defaults and each worker group 3, whatever they really use, and a cluster with
fewer makes verl wait for ever without a word. Source: TransferQueue 0.1.11 controller.py, verl 0.9.1
single_controller/ray/base.py.
"""

FREE_SECONDS = 60.0
"""How long Ray may take to give the resources of a killed process back; 5 s were measured. Ours."""

CALL_SECONDS = 60.0
"""How long a host may take to answer before its node counts as lost. Ours."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Where processes run. Without `address` a local cluster is started, which ends with the campaign.

    `num_cpus` and `num_gpus` are what a local cluster claims to have (None: what is found). `host_resources` are
    resources that a node must have to run the processes themselves, which need neither GPU nor much CPU.
    """

    address: str = ""
    num_cpus: int | None = None
    num_gpus: int | None = None
    object_store_gib: float = 1.0
    host_resources: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def without_gpus(cls, processes: int, gpus_each: int = 1, object_store_gib: float = 0.25) -> ClusterSettings:
        """A local cluster that claims enough for so many CPU trainers at once; to Ray a rank's share is a GPU."""
        return cls(num_cpus=LOGICAL_CPUS * processes, num_gpus=gpus_each * processes, object_store_gib=object_store_gib)


class RayLauncher:
    """Opened on first use. One for each process, since Ray has one connection for each process."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._address = ""
        self._hosts: list[RayHost] = []

    def open(self) -> None:
        """Connect; does nothing if connected.

        Raises:
            ConfigError: if there is no cluster at the address.
            EngineError: if a local cluster cannot be started.
        """
        if self._address:
            return
        arguments = self._existing() if self._settings.address else self._local()
        import ray

        try:
            context = ray.init(namespace=NAMESPACE, log_to_driver=False, configure_logging=False, **arguments)
        except ConnectionError as error:
            raise ConfigError(
                f"no Ray cluster answers at cluster.address={self._settings.address!r} ({error}); start one with "
                "`ray start --head`, or leave the address empty for a local cluster"
            ) from error
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(f"Ray could not be started: {error}") from error
        self._address = str(context.address_info["gcs_address"])

    def resources(self) -> dict[str, float]:
        """Ray's totals by name over all nodes: CPU, GPU, memory and custom ones."""
        self.open()
        import ray

        return {k: float(v) for k, v in ray.cluster_resources().items()}

    def launch(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> RayHost:
        """A started Python process; its mailbox is the actor of this name in the namespace.

        Raises:
            EngineError: if no node takes it.
        """
        self.open()
        import ray

        options = {"name": name, "namespace": NAMESPACE, "num_cpus": 0, "max_concurrency": 16}
        actor = ray.remote(RuntimeHost).options(**options, resources=dict(self._settings.host_resources)).remote(name)
        driver = {"RAY_ADDRESS": self._address, "RAY_COLOR_PREFIX": "0"}
        try:
            pid = ray.get(actor.start.remote(list(arguments), {**driver, **environment}), timeout=CALL_SECONDS)
        except (ray.exceptions.RayError, OSError) as error:
            wanted = dict(self._settings.host_resources) or "no resources"
            raise EngineError(f"no node of the Ray cluster runs {name} (asked for {wanted}): {error}") from error
        self._hosts = [h for h in self._hosts if not h.closed]
        self._hosts.append(RayHost(name, actor, pid, _node_of(actor)))
        return self._hosts[-1]

    def call(self, function: Callable[..., Result], *arguments: object, gpus: int = 0) -> Result:
        """What the function returns on a node that has so many GPUs free, which are its own meanwhile.

        Raises:
            EngineError: if no such node comes free within the time that a killed process has to give its GPUs back.
        """
        self.open()
        import ray

        ref = ray.remote(function).options(num_cpus=0, num_gpus=gpus, max_retries=0).remote(*arguments)
        try:
            return ray.get(ref, timeout=FREE_SECONDS)  # type: ignore[no-any-return]
        except ray.exceptions.GetTimeoutError as error:
            ray.cancel(ref, force=True)
            free = ray.available_resources().get("GPU", 0)
            raise EngineError(f"{gpus} GPUs were asked for, {free:g} came free in {FREE_SECONDS:g} s") from error
        except ray.exceptions.RayError as error:
            raise EngineError(f"{function.__name__} failed on a node of the Ray cluster: {error}") from error

    def close(self) -> None:
        """Kill what was launched, then disconnect; a local cluster ends. Safe to call again.

        Raises:
            EngineError: if something on a given cluster did not end.
        """
        errors: list[EngineError] = []
        for host in self._hosts:
            try:
                host.close()
            except EngineError as error:
                errors.append(error)
        self._hosts.clear()
        if self._address:
            import ray

            ray.shutdown()
            self._address = ""
        if errors and self._settings.address:
            raise errors[0]

    def _existing(self) -> dict[str, Any]:
        return {"address": self._settings.address}

    def _local(self) -> dict[str, Any]:
        # Only this machine's user talks to it; a token file would be left in the home folder.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # A killed worker must not leave the processes that it spawned (vLLM's engine) on the GPU.
        os.environ.setdefault("RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper", "true")
        return {
            "address": "local",
            "num_cpus": self._settings.num_cpus,
            "num_gpus": self._settings.num_gpus,
            "object_store_memory": int(self._settings.object_store_gib * 2**30),
            "include_dashboard": False,
        }


class RayHost:
    """The campaign's side of a launched process: `RuntimeHost` behind Ray, whose node may be lost."""

    def __init__(self, name: str, actor: Any, pid: int, node: str) -> None:
        self.name = name
        self.closed = False
        self._actor = actor
        self._driver = (node, pid)

    def send(self, command: Mapping[str, Any]) -> None:
        """Queue a command for the process."""
        self._ask("send", None, dict(command))

    def request_stop(self, trial_id: str, reason: str) -> None:
        """Let the process know that this trial shall stop."""
        self._ask("request_stop", None, trial_id, reason)

    def receive(self, after: int, wait_seconds: float) -> Sequence[Mapping[str, Any]]:
        """The messages numbered over `after`; `gone` if the node is lost."""
        lost = [{"type": "gone", "exit_code": None, "reason": "its node is lost", "number": after + 1}]
        return self._ask("receive", lost, after, wait_seconds)

    def read_log(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """The console from a byte offset on; nothing if the node is lost."""
        return self._ask("read_log", b"", offset, max_bytes)

    def close(self) -> None:
        """Kill the process and wait until its workers are gone and its resources are free. Safe to call again.

        Raises:
            EngineError: if they are not within the time that they have.
        """
        if self.closed:
            return
        self.closed = True
        import ray

        left: list[int] = self._ask("kill", [])
        free = _freed(*self._driver)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
        if left or not free:
            raise EngineError(f"{self.name} did not end within {FREE_SECONDS:g} s; processes left on its node: {left}")

    def _ask(self, method: str, lost: Result, *arguments: object) -> Result:
        """The host's answer, `lost` if it has none to give any more."""
        import ray

        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=CALL_SECONDS)  # type: ignore[no-any-return]
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return lost


def _node_of(actor: Any) -> str:
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
