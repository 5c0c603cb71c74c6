"""Whether the machine can hold the run's processes: logical CPUs, socket paths, host memory."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_cpus
from sweep.core import verl_keys as keys
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, warn
from sweep.health.preflight.memory import GIB, GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from sweep.health.preflight.settings import Config, flag, needs_critic, text, uses_v1, whole

AGENT_WORKERS_DEFAULT = 8
REWARD_WORKERS_DEFAULT = 8
"""Source: verl trainer/config/rollout/rollout.yaml, reward/reward.yaml."""

SOCKET_PATH_BYTES = 107
"""Longest path of an AF_UNIX socket on Linux, without its final zero byte."""

RAY_SOCKET = "/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""What Ray appends to its temporary folder, with a process id of seven digits. Source: verl-project/verl#1120."""

RAY_TMP_BYTES = SOCKET_PATH_BYTES - len(RAY_SOCKET)
"""Longest temporary folder of Ray: 43 bytes."""


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on the machine."""
    yield from _cpus(config, facts)
    yield from _ray_folder(text(config, keys.RAY_TMP) or facts.ray_temp_dir)
    yield from _host_memory(config, facts)


def needed_cpus(config: Config) -> int | None:
    """Logical CPUs that one trial must find on its node: what it reserves, on GPUs at least the floor."""
    gpus = whole(config, keys.GPUS_PER_NODE)
    if gpus is None or gpus < 1:
        return None
    return verl_cpus.needed(gpus, _queue_cpus(config), on_cpu=text(config, keys.DEVICE) == "cpu")


def _queue_cpus(config: Config) -> int:
    if not uses_v1(config):
        return 0
    return verl_cpus.of_queue(whole(config, keys.QUEUE_UNITS), text(config, keys.QUEUE_BACKEND))


def _cpus(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    need, granted = needed_cpus(config), whole(config, keys.RAY_CPUS)
    have = granted if granted is not None else facts.logical_cpus
    if need is None or have is None or have >= need or text(config, keys.RAY_ADDRESS) not in (None, "local"):
        return
    reserved = verl_cpus.reserved(whole(config, keys.GPUS_PER_NODE) or 0, _queue_cpus(config))
    if reserved > have:
        what = f"a trial reserves {reserved} logical CPUs, Ray has {have}"
        why = "Ray waits for the missing ones for ever: TransferQueue or the placement group hangs without a word"
    else:
        what = f"Ray has {have} logical CPUs: a trial reserves {reserved}, but {need} are the floor of a GPU host"
        why = "below the floor verl's start is unproven, and where it fails it hangs without a word"
    yield error(
        "CPUS_SHORT",
        what,
        why,
        nearest=(*_fewer_units(config, have), f"{keys.RAY_CPUS}={need}"),
        keys=(keys.RAY_CPUS, keys.QUEUE_UNITS, keys.GPUS_PER_NODE),
        source="METHOD section 9; verl single_controller/ray/base.py; TransferQueue controller.py",
        computed={"need": need, "have": have},
    )


def _fewer_units(config: Config, have: int) -> tuple[str, ...]:
    """As many storage units of the queue as these CPUs allow, where that is what is short."""
    spare = have - verl_cpus.reserved(whole(config, keys.GPUS_PER_NODE) or 0, verl_cpus.QUEUE_CONTROLLER_CPUS)
    fits = _queue_cpus(config) > 0 and spare >= 1 and (needed_cpus({**config, keys.QUEUE_UNITS: spare}) or 0) <= have
    return (f"{keys.QUEUE_UNITS}={spare}",) if fits else ()


def _ray_folder(folder: str | None) -> Iterator[PreflightFinding]:
    if folder is None or len(folder.rstrip("/").encode()) <= RAY_TMP_BYTES:
        return
    length = len(folder.rstrip("/").encode())
    yield error(
        "RAY_TMP_TOO_LONG",
        f"Ray's temporary folder {folder} has {length} bytes, at most {RAY_TMP_BYTES} are possible",
        f"Ray puts sockets below it, and a socket's path ends at {SOCKET_PATH_BYTES} bytes",
        nearest=("a short hash under a scratch folder, such as /tmp/r/1f3a9c02",),
        keys=(keys.RAY_TMP,),
        source="verl-project/verl#1120",
        computed={"length": length, "limit": RAY_TMP_BYTES},
    )


def _host_memory(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    if facts.host_memory_gib is None:
        return
    need_gib = _workers(config) * facts.limits.worker_gib + _offloaded_gib(config, facts)
    if need_gib > facts.host_memory_gib:
        yield warn(
            "HOST_MEMORY_SHORT",
            f"workers and offloaded state take about {need_gib:.0f} GiB of the host's {facts.host_memory_gib:.0f} GiB",
            "Ray kills workers at 95 % of host memory, which looks like a crash without a cause",
            nearest=(f"{keys.AGENT_WORKERS}=2", f"{keys.REWARD_WORKERS}=2", f"{keys.ACTOR_PARAM_OFFLOAD}=false"),
            keys=(keys.AGENT_WORKERS, keys.REWARD_WORKERS, keys.ACTOR_PARAM_OFFLOAD, keys.ACTOR_OPTIMIZER_OFFLOAD),
            source="verl-project/verl#2950",
            computed={"need_gib": round(need_gib, 1), "have_gib": round(facts.host_memory_gib, 1)},
        )


def _workers(config: Config) -> int:
    agents, rewards = whole(config, keys.AGENT_WORKERS), whole(config, keys.REWARD_WORKERS)
    return (AGENT_WORKERS_DEFAULT if agents is None else agents) + (
        REWARD_WORKERS_DEFAULT if rewards is None else rewards
    )


def _offloaded_gib(config: Config, facts: Facts) -> float:
    """GiB that offloading moves to the hosts, divided by the nodes."""
    actor = facts.model.parameters or 0.0
    critic = (facts.critic_model.parameters or actor) if needs_critic(config) else 0.0
    weights, moments = WEIGHT_BYTES + GRADIENT_BYTES, OPTIMIZER_BYTES
    moved = 0.0
    for key, parameters, size in (
        (keys.ACTOR_PARAM_OFFLOAD, actor, weights),
        (keys.ACTOR_OPTIMIZER_OFFLOAD, actor, moments),
        (keys.CRITIC_PARAM_OFFLOAD, critic, weights),
        (keys.CRITIC_OPTIMIZER_OFFLOAD, critic, moments),
    ):
        moved += parameters * size if flag(config, key) else 0.0
    return moved / GIB / max(1, whole(config, keys.NODES) or 1)
