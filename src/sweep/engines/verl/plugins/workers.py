"""What the trainer asks of its training workers, run inside them through Ray's `__ray_call__`.

verl puts all roles of one device into one Ray actor; `roles` finds them there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweep.core.clip_schedule import max_norm, steps_before_updates
from sweep.engines.verl.plugins.process_seeds import seed_process
from sweep.engines.verl.plugins.value_head import redraw

CLIP_SETTING = "sweep_clip"
"""Attribute of a training engine: its `Clipping`, or None to clip as verl does."""

ACTOR, CRITIC, REFERENCE = "actor", "critic", "reference"


@dataclass(frozen=True, slots=True)
class Clipping:
    """The falling threshold of one engine; `late` are training steps before its first update."""

    decay: float
    floor: float
    late: int = 0

    def norm(self, start: float, updated_steps: int) -> float:
        """The threshold after so many training steps that updated the engine."""
        return max_norm(start, self.late + updated_steps, self.decay, self.floor)


@dataclass(frozen=True, slots=True)
class TrialStart:
    """What every worker is told before a trial's first step, in a new process and in a used one alike."""

    seed: int
    value_head_seed: int | None
    clip: tuple[float, float] | None
    fresh_weights: bool
    """Whether the weights are the start weights, not those of a checkpoint that the run resumes from."""
    critic_warmup: int = 0

    def clipping(self, role: str) -> Clipping | None:
        """The role's falling threshold, None if there is none."""
        late = steps_before_updates(self.critic_warmup) if role == ACTOR else 0
        return None if self.clip is None else Clipping(*self.clip, late)


def roles(worker: Any) -> dict[str, Any]:
    """Role to verl's `TrainingWorker`, of those that this Ray actor plays."""
    found: dict[str, Any] = {}
    for part in worker.worker_dict.values():
        if hasattr(part, "engine"):
            found[CRITIC] = part
            continue
        for role, training_worker in ((ACTOR, part.actor), (REFERENCE, part.ref)):
            if training_worker is not None:
                found[role] = training_worker
    return found


def start_trial(worker: Any, start: TrialStart) -> None:
    """Seeds the process and gives the engines what the trial's plug-ins need."""
    seed_process(start.seed)
    for role, training_worker in roles(worker).items():
        if role == REFERENCE:
            continue
        setattr(training_worker.engine, CLIP_SETTING, start.clipping(role))
        if role == CRITIC and start.fresh_weights and start.value_head_seed is not None:
            redraw(training_worker.engine, start.value_head_seed)
