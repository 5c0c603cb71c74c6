"""Stages, trials and outcomes that the store tests share."""

from __future__ import annotations

import math

from sweep.core.curve import Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import EtaRule, Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.core.winner import Choice, Score, Winner

KL = "algorithm.kl_ctrl.kl_coef"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"
BASE = Overrides.of({KL: 0.001, MINI: 256, "data.train_batch_size": 512})

kl = Stage("kl", (Knob(KL, 0.0005, 0.01, log=True),), SearchRule(), "reward", StageBudget(10, 20))
minibatch = Stage("minibatch", (Knob(MINI, 64, 512, integer=True),), EtaRule(), "efficiency", StageBudget(6, 20))


def proposal(settings: dict[str, object] | None = None, seed: int = 0, number: int | None = None) -> Proposal:
    """A proposal of these settings; without any, the baseline."""
    return Proposal(Overrides.of(settings or {}), seed, Overrides.of(settings or {}), "by a test", number)


def trial(settings: dict[str, object] | None = None, seed: int = 0) -> Trial:
    """The trial of these settings on the shared base."""
    return Trial(BASE.merged(settings or {}), seed, 20)


def finished(height: float = 0.5) -> Finished:
    """A finished outcome whose values need rounding and whose metrics have gaps."""
    rows = [(s, {"critic/score/mean": height * s / 3, "timing_s/step": 2.0}) for s in range(1, 21)]
    rows[4] = (5, {"critic/score/mean": math.nan, "timing_s/step": 2.0})
    return Finished(Curve.from_rows(rows), 40.0)


def failed(failure_class: FailureClass = FailureClass.OOM_GPU, message: str = "out of memory") -> Failed:
    """A failed outcome."""
    return Failed(failure_class, message, last_step=7, log_path="runs/a1/log.txt", wall_seconds=3.0)


def score(value: float) -> Score:
    """A score with parts."""
    return Score(value, 0.01, (("gain", value), ("step_seconds", 2.0)))


def winner(stage: str = "kl", settings: dict[str, object] | None = None, stands_on: str = "abc") -> Winner:
    """A winner of the stage."""
    chosen = Overrides.of(settings or {KL: 0.002})
    choice = Choice(chosen, NOTHING, score(0.6), Score(0.5), (trial().id,), "highest", ("one note",))
    return Winner(
        stage=stage,
        choice=choice,
        rule="search",
        seeds=(0,),
        stands_on=stands_on,
        upstream=(("minibatch", "def"),),
        versions=(("verl", "0.9.1"),),
    )
