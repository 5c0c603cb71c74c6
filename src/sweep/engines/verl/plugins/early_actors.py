"""Ray actors that are started before their arguments are known, so that their imports overlap with other work.

verl starts its processes one after another, and each spends its first seconds importing what the others import too.
"""

from __future__ import annotations

from typing import Any

import ray


class EarlyActors:
    """Takes the place of an actor class where verl starts actors of it: hands out ones that run already.

    The class must have a method `begin`, which gets what verl means for the constructor.
    """

    def __init__(self, actor_class: type, count: int) -> None:
        self.begun: list[Any] = []
        self._waiting = [_start(actor_class, number) for number in range(count)]

    def options(self, **options: Any) -> EarlyActors:
        """Name and place were chosen at the start."""
        return self

    def remote(self, *arguments: Any, **named: Any) -> Any:
        """The handle of the next actor, which begins; `begun` tells when it has."""
        handle = self._waiting.pop(0)
        self.begun.append(handle.begin.remote(*arguments, **named))
        return handle


def _start(actor_class: type, number: int) -> Any:
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)
    return ray.remote(actor_class).options(scheduling_strategy=strategy).remote()
