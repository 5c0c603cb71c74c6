"""Is every rank back at its start? Compares what the workers report with what a new process would be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.engines.verl.plugins.reset import RoleState


class ResetIncomplete(RuntimeError):
    """A rank is not at its start: what it would train next is not the trial that was asked for."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a role's optimizer and loss must be, read from the trial's configuration."""

    start_lr: float
    loss: Mapping[str, Any] = field(default_factory=dict)


def complaints(
    now: Sequence[Mapping[str, RoleState]],
    start: Sequence[Mapping[str, RoleState]],
    expected: Mapping[str, Expected],
) -> list[str]:
    """What differs from a new process, a phrase each; empty if nothing does. One entry of the sequences per rank."""
    if len(now) != len(start):
        return [f"{len(now)} ranks answered, {len(start)} were there at the start"]
    found: list[str] = []
    for rank, (current, original) in enumerate(zip(now, start, strict=True)):
        if current.keys() != original.keys():
            found.append(f"rank {rank} plays {sorted(current)} instead of {sorted(original)}")
            continue
        for role in original:
            what = _role_complaints(current[role], original[role], expected.get(role))
            found += [f"rank {rank} {role}: {phrase}" for phrase in what]
    return found


def _role_complaints(now: RoleState, start: RoleState, expected: Expected | None) -> list[str]:
    changed = [name for name in start.weights.keys() | now.weights if start.weights.get(name) != now.weights.get(name)]
    found = [f"{len(changed)} of {len(start.weights)} tensors changed"] if changed else []
    if expected is None:
        return found
    checks = {
        f"{now.optimizer_entries} optimizer entries left": now.optimizer_entries == 0,
        f"{now.gradients} gradients left": now.gradients == 0,
        f"schedule at step {now.schedule_step}": now.schedule_step == 0,
        f"learning rate {now.start_lr} instead of {expected.start_lr}": now.start_lr == expected.start_lr,
        f"loss {dict(now.loss)} instead of {dict(expected.loss)}": dict(now.loss) == dict(expected.loss),
    }
    return found + [phrase for phrase, holds in checks.items() if not holds]
