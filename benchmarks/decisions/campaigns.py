"""`play_one`: one campaign of one method in one world, and how good its incumbent was after how many steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from benchmarks.decisions.ours import OURS, play
from benchmarks.decisions.worlds import World, world
from sweep.core.overrides import Overrides
from sweep.core.stage import Stage

PURSE_STEPS = 30_000
"""What a peer may spend: 60 trials of 500 steps."""

METHODS = (*OURS, "joint TPE", "step-wise TPE", "ASHA + OptunaSearch", "random")


@dataclass(frozen=True, slots=True)
class Campaign:
    """`path`: (steps spent, true quality of the incumbent as a share of the best) whenever it changed; the last is
    what the method ends with."""

    method: str
    kind: str
    cv: float
    number: int
    path: tuple[tuple[int, float], ...]

    def quality_at(self, steps: int) -> float:
        """Quality of the incumbent after so many steps."""
        return [q for s, q in self.path if s <= steps][-1]

    @property
    def quality(self) -> float:
        return self.path[-1][1]

    @property
    def steps(self) -> int:
        return self.path[-1][0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Campaign:
        return cls(**{**content, "path": tuple((int(s), float(q)) for s, q in content["path"])})


def play_one(method: str, kind: str, cv: float, number: int) -> Campaign:
    """The campaign of that number: the same world for every method."""
    here = world(kind, cv, number)
    seen = [(0, here.quality(Overrides()))]
    for steps, settings in _ours(method, here, number) if method in OURS else _peer(method, here, number):
        if steps > PURSE_STEPS and method not in OURS:
            break
        seen.append((steps, round(here.quality(settings), 5)))
    return Campaign(method, kind, cv, number, _changes(seen))


def _ours(method: str, here: World, number: int) -> Iterator[tuple[int, Overrides]]:
    for _, steps, settings in play(_plan(method), here, number).after_stage:
        yield steps, settings


def _peer(method: str, here: World, number: int) -> Iterator[tuple[int, Overrides]]:
    from benchmarks.decisions.peers import PEERS

    for settings in PEERS[method](here, number):
        yield here.spent_steps, settings


@lru_cache(maxsize=8)
def _plan(method: str) -> tuple[Stage, ...]:
    return OURS[method]()


def _changes(seen: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Start, every change, end."""
    kept = [seen[0]]
    for point in seen[1:]:
        if point[1] != kept[-1][1]:
            kept.append(point)
    if seen[-1][0] != kept[-1][0]:
        kept.append(seen[-1])
    return tuple(kept)
