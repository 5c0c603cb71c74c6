"""`RayLauncher`: starts processes with a mailbox on a Ray cluster, its own or a given one; `ClusterSettings`.

A launched process is a Ray driver of its own: the cluster sees one job for each, places its workers where the
resources are and takes them back when the process is gone. Everything else comes home through `RayHost`, so driver
and nodes need no common file system.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sweep.adapters.ray_host import RuntimeHost
from sweep.adapters.ray_job import CALL_SECONDS, FREE_SECONDS, RayHost
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

LAUNCH_SECONDS = 180.0
"""How long a node may take to start a host, which is a Ray worker: seconds, on a slow disk a minute. Ours."""

CONNECT_SECONDS = 10.0
"""How long a given cluster may take to accept a connection. Ours."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Where processes run. Without `address` a local cluster is started, which ends with the campaign.

    On a given cluster processes outlive a driver that dies: the next one finds them (`RayLauncher.left`), and if none
    comes within `unattended_seconds` they end by themselves.

    `num_cpus` and `num_gpus` are what a local cluster claims to have (None: what is found). `host_resources` are
    resources that a node must have to run the processes themselves, which need neither GPU nor much CPU.
    """

    address: str = ""
    num_cpus: int | None = None
    num_gpus: int | None = None
    object_store_gib: float = 1.0
    host_resources: Mapping[str, float] = field(default_factory=dict)
    unattended_seconds: float = 3600.0

    @classmethod
    def without_gpus(cls, processes: int, gpus_each: int = 1, object_store_gib: float = 0.25) -> ClusterSettings:
        """A local cluster that claims enough for so many CPU trainers at once; to Ray a rank's share is a GPU."""
        return cls(num_cpus=LOGICAL_CPUS * processes, num_gpus=gpus_each * processes, object_store_gib=object_store_gib)


class _HostActor(RuntimeHost):
    """The host as an actor of a given cluster: its Ray worker ends with an abandoned campaign."""

    def abandoned(self) -> None:
        os._exit(0)


class RayLauncher:
    """Opened on first use. One for each process, since Ray has one connection for each process."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._address = ""
        self._hosts: list[RayHost] = []
        self._owner = secrets.token_hex(8)

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
            raise _no_cluster(self._settings.address, str(error)) from error
        except Exception as error:  # Ray raises a plain Exception when its node does not answer in time
            raise EngineError(f"Ray could not be started: {error}") from error
        self._address = str(context.address_info["gcs_address"])

    def nodes(self) -> list[dict[str, float]]:
        """What each living node has in all, by Ray's names: CPU, GPU, memory and custom ones.

        Raises:
            EngineError: if the cluster does not answer any more.
        """
        self.open()
        import ray

        try:
            nodes = ray.nodes()
        except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise EngineError(f"the Ray cluster does not answer any more: {error}") from error
        return [{k: float(v) for k, v in node["Resources"].items()} for node in nodes if node["Alive"]]

    def left(self, prefix: str) -> list[RayHost]:
        """The hosts with names that begin so which an earlier driver of a given cluster left; now they are ours."""
        self.open()
        if not self._settings.address:
            return []
        import ray

        mine = {host.name for host in self._hosts}
        found = []
        for actor in ray.util.list_named_actors(all_namespaces=True):
            name = str(actor["name"])
            if actor["namespace"] == NAMESPACE and name.startswith(prefix) and name not in mine:
                found += self._attended(name)
        self._hosts += found
        return found

    def _attended(self, name: str) -> list[RayHost]:
        """The host of this name, none if its node is lost."""
        import ray

        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
            state = ray.get(actor.attend.remote(self._owner), timeout=CALL_SECONDS)
        except (ray.exceptions.RayError, ValueError):
            return []
        return [RayHost(name, actor, state["pid"], self._owner, state["label"], state["command"])]

    def launch(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        gpus: int = 0,
        label: Mapping[str, Any] | None = None,
    ) -> RayHost:
        """A started Python process; its mailbox is the actor of this name in the namespace.

        A process that is a trainer leases its GPUs itself, as a driver; `gpus` are leased for one that does not, and
        `CUDA_VISIBLE_DEVICES` names them to it. With a `label` it outlives this driver on a given cluster.

        Raises:
            EngineError: if no node takes it, or the GPUs do not come free.
        """
        self.open()
        import ray

        options: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "num_cpus": 0, "num_gpus": gpus}
        options |= {"max_concurrency": 16, "resources": dict(self._settings.host_resources)}
        if self._settings.address and label is not None:
            outliving = options | {"lifetime": "detached"}
            actor = ray.remote(_HostActor).options(**outliving).remote(name, label, self._settings.unattended_seconds)
        else:
            actor = ray.remote(RuntimeHost).options(**options).remote(name, label)
        driver = {"RAY_ADDRESS": self._address, "RAY_COLOR_PREFIX": "0"}
        try:
            ray.get(actor.attend.remote(self._owner), timeout=LAUNCH_SECONDS)
            pid = ray.get(actor.start.remote(list(arguments), {**driver, **environment}), timeout=LAUNCH_SECONDS)
        except (ray.exceptions.RayError, OSError) as error:
            ray.kill(actor)
            wanted = dict(self._settings.host_resources) | ({"GPU": gpus} if gpus else {}) or "no resources"
            raise EngineError(f"no node of the Ray cluster runs {name} (asked for {wanted}): {error}") from error
        self._hosts = [h for h in self._hosts if not h.closed]
        self._hosts.append(RayHost(name, actor, pid, self._owner, label))
        return self._hosts[-1]

    def call(self, function: Callable[..., Result], *arguments: object, gpus: int = 0) -> Result:
        """What the function returns on a node that has so many GPUs free, which are its own meanwhile.

        Without `gpus` a node with GPUs runs it although others hold them, any node if the cluster has none.

        Raises:
            EngineError: if no such node comes free within the time that a killed process has to give its GPUs back.
        """
        self.open()
        import ray

        where = "DEFAULT" if gpus else _beside_gpus()
        options = {"num_cpus": 0, "num_gpus": gpus, "max_retries": 0, "scheduling_strategy": where}
        ref = ray.remote(function).options(**options).remote(*arguments)
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
        address = self._settings.address
        if address.startswith("ray://"):
            raise ConfigError(f"cluster.address must be auto or HOST:PORT of the cluster's GCS, got {address!r}")
        host, colon, port = address.rpartition(":")
        if colon and not _answers(host, port):
            raise _no_cluster(address, "nobody listens there")
        return {"address": address}

    def _local(self) -> dict[str, Any]:
        # Only this machine's user talks to it; a token file would be left in the home folder.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        return {
            "address": "local",
            "num_cpus": self._settings.num_cpus,
            "num_gpus": self._settings.num_gpus,
            "object_store_memory": int(self._settings.object_store_gib * 2**30),
            "include_dashboard": False,
        }


def _beside_gpus() -> Any:
    """Ray's strategy for a task that looks at a node with GPUs and needs none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) > 0]
    return NodeAffinitySchedulingStrategy(nodes[0], soft=True) if nodes else "DEFAULT"


def _no_cluster(address: str, reason: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster answers at cluster.address={address!r} ({reason}); start one with `ray start --head`, or "
        "leave the address empty for a local cluster"
    )


def _answers(host: str, port: str) -> bool:
    """Whether somebody listens there; Ray itself tries for minutes."""
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
