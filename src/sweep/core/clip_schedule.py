"""`max_norm`: a clipping threshold that falls with the training step, down to a floor. Pure.

Source: S0 section 4.1 (max_norm times 0.999^step). Ours: the floor, without which the threshold is 0.007 of its
start at step 5000 and the policy stands still.
"""

from __future__ import annotations

DECAY_PER_STEP = 0.999
FLOOR = 0.1


def max_norm(start: float, step: int, decay: float = DECAY_PER_STEP, floor: float = FLOOR) -> float:
    """The threshold at a training step, counted from 0: `start` times the larger of decay^step and the floor."""
    return start * max(floor, decay**step)


def steps_before_updates(critic_warmup: int) -> int:
    """Training steps before the actor's first update, which verl makes at the step of that number."""
    return max(0, critic_warmup - 1)
