"""`Decision`: what a rule wants done next. The loop in `sweep.campaign` carries it out and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sweep.core.progress import Proposal
from sweep.core.winner import Choice


@dataclass(frozen=True, slots=True)
class Launch:
    """Run these candidates."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let the stage's sampler propose this many candidates, and run them."""

    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to start before a running trial ends."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """The stage is done; this is its winner."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class Halt:
    """The stage cannot name a winner."""

    reason: str


Decision: TypeAlias = Launch | Ask | Wait | Freeze | Halt
