"""How many verl of one shape a cluster can hold at once: `most_at_once`, and why no more: `shortage`. Pure.

verl asks Ray for a placement group of one bundle a GPU, all of a node together, and waits for ever if there is no such
place. Source: verl 0.9.1 single_controller/ray/base.py (STRICT_PACK).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.trial import Trial
from sweep.core.verl_cpus import CPUS_PER_GPU, GPU_HOST_FLOOR
from sweep.engines.verl.settings import EngineSettings, cpus_of, gpus_of, gpus_per_node, reserved_cpus_of

Nodes = Sequence[Mapping[str, float]]
"""What each living node of the cluster has in all, named as Ray names it."""

ENOUGH = 1024
"""Where counting ends: no campaign runs more trials at once. Ours."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one verl must find: on each of `nodes` nodes so many GPUs with their CPUs, and CPUs anywhere beside them.

    `idle_cpus` of the other CPUs are reserved by nobody: the floor of a GPU host asks for them.
    """

    nodes: int
    gpus_a_node: int
    cpus_a_node: int
    other_cpus: int
    idle_cpus: int = 0

    @classmethod
    def of(cls, trial: Trial, settings: EngineSettings) -> Shape:
        """The shape of the trial's verl."""
        gpus = gpus_per_node(trial)
        nodes = gpus_of(trial) // gpus
        bundles = nodes * gpus * CPUS_PER_GPU
        needed = cpus_of(trial, settings)
        idle = needed - reserved_cpus_of(trial, settings)
        return cls(nodes, gpus, gpus * CPUS_PER_GPU, needed - bundles, idle)


def most_at_once(nodes: Nodes, shape: Shape) -> int:
    """How many of the shape fit onto the nodes together."""
    left = [[node.get("GPU", 0.0), node.get("CPU", 0.0)] for node in nodes]
    count = 0
    while count < ENOUGH and _take(left, shape):
        count += 1
    return count


def _take(left: list[list[float]], shape: Shape) -> bool:
    """Whether one more fits; takes its share."""
    places = [n for n in left if n[0] >= shape.gpus_a_node and n[1] >= shape.cpus_a_node]
    places = sorted(places, key=lambda n: n[0])[: shape.nodes]  # the fullest first, so that large places stay
    spare = sum(n[1] for n in left) - shape.nodes * shape.cpus_a_node
    if len(places) < shape.nodes or spare < shape.other_cpus:
        return False
    for node in places:
        node[0] -= shape.gpus_a_node
        node[1] -= shape.cpus_a_node
    others = float(shape.other_cpus)
    for node in left:
        share = min(node[1], others)
        node[1] -= share
        others -= share
    return True


def shortage(nodes: Nodes, shape: Shape, wanted: int) -> str:
    """Why fewer than `wanted` fit, what was found and what would do."""
    gpus, cpus = shape.nodes * shape.gpus_a_node, shape.nodes * shape.cpus_a_node + shape.other_cpus
    has = {kind: sum(node.get(kind, 0.0) for node in nodes) for kind in ("GPU", "CPU")}
    asked = f"{wanted} verl at once need"
    waits = "verl would wait for the rest without a word"
    floor = (
        f"although verl reserves only {cpus - shape.idle_cpus} of {cpus}, on a GPU host {GPU_HOST_FLOOR} are the "
        "floor, below which its start is unproven"
    )
    only_floor = has["CPU"] >= (cpus - shape.idle_cpus) * wanted
    for kind, each, why, hint in (
        ("GPU", gpus, waits, f"lower {keys.GPUS_PER_NODE} or cluster.slots"),
        (
            "CPU",
            cpus,
            floor if only_floor else waits,
            f"lower cluster.slots, or let Ray count more: ray start --head --num-cpus={cpus * wanted}, and cluster=ray",
        ),
    ):
        if has[kind] < each * wanted:
            short = f"{each * wanted} {kind}s ({each} each), but the Ray cluster has {has[kind]:g}"
            return f"{asked} {short}, and {why}; {hint}"
    found = ", ".join(f"{node.get('GPU', 0):g}/{node.get('CPU', 0):g}" for node in nodes)
    return (
        f"{asked} {shape.gpus_a_node} GPUs and {shape.cpus_a_node} CPUs together on each of {shape.nodes * wanted} "
        f"places, but the nodes have {found} (GPUs/CPUs), which holds {most_at_once(nodes, shape)}, and verl would "
        f"wait for the rest without a word; lower {keys.GPUS_PER_NODE} or cluster.slots"
    )
