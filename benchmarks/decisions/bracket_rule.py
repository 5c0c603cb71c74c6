"""Stage rule `bracket`: every knob walked by `sweep.stats.bracket`, one after the other, the winner confirmed or not.

One run a value; the peak of the parabola through all of them is the candidate. With `confirmed` the candidate must then
be *better* than the stage's baseline by `sweep.stats.verdict` over further seeds, or the baseline is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress
from sweep.core.stage import Knob, Stage
from sweep.core.winner import Choice
from sweep.stages import objective
from sweep.stages.arms import Arm, Measured, measure
from sweep.stats.bracket import MOST_POINTS, Probe, Settled, advance
from sweep.stats.efficiency import pooled_spread, ratio
from sweep.stats.estimate import Estimate
from sweep.stats.verdict import Comparison, Verdict, compare

BASELINE = Arm(NOTHING, NOTHING, "baseline")
FIRST_FACTOR = 0.7
"""First move of the mini-batch. Source: S0 section 2.1."""

MOVES = 4
"""Moves across the range of any other knob. Ours."""


def confirmed(stage: Stage, progress: Progress) -> Decision:
    """The rule with confirmation."""
    return _decide(stage, progress, confirm=True)


def bold(stage: Stage, progress: Progress) -> Decision:
    """The rule without it: the best value is taken as it looks."""
    return _decide(stage, progress, confirm=False)


def _decide(stage: Stage, progress: Progress, *, confirm: bool) -> Decision:
    held = BASELINE
    for knob in stage.knobs:
        step = _walk(stage, progress, knob, held)
        if not isinstance(step, Arm):
            return step
        if confirm and step.settings != held.settings:
            verdict = _confirm(stage, progress, held, step)
            if not isinstance(verdict, Comparison):
                return verdict
            step = step if verdict.verdict is Verdict.BETTER else held
        held = step
    return _freeze(stage, progress, held)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A knob's positions, and the settings of a position."""

    stage: Stage
    knob: Knob
    held: Overrides
    base: Overrides

    def position(self, value: float) -> float:
        return math.log(value) if self.knob.log else value

    @property
    def start(self) -> float:
        value = self.base.merged(self.held).get(self.knob.key)
        assert isinstance(value, int | float)
        return min(self.high, max(self.low, self.position(float(value))))

    @property
    def low(self) -> float:
        return self.position(self.knob.low)

    @property
    def high(self) -> float:
        return self.position(self.knob.high)

    @property
    def step(self) -> float:
        if self.knob.key == keys.MINI_BATCH:
            return math.log(FIRST_FACTOR)
        up = (self.high - self.low) / MOVES
        return up if self.start + up <= self.high + 1e-9 else -up

    def arm(self, position: float) -> Arm:
        if abs(position - self.start) < 1e-9 and self._standing:
            return Arm(self.held, self.held, "baseline")
        value: float = math.exp(position) if self.knob.log else position
        value = round(value) if self.knob.integer else float(f"{value:.4g}")
        settings = self.stage.fixed.merged(self.held).merged({self.knob.key: value})
        return Arm(settings, settings, f"{self.knob.key} {value}")

    @property
    def _standing(self) -> bool:
        value = self.base.merged(self.held).get(self.knob.key)
        return isinstance(value, int | float) and abs(self.position(float(value)) - self.start) < 1e-9


def _walk(stage: Stage, progress: Progress, knob: Knob, held: Arm) -> Arm | Launch | Wait | Halt:
    axis = _Axis(stage, knob, held.settings, progress.base)
    scores: dict[float, float] = {}
    while True:
        found = advance(scores, start=axis.start, step=axis.step, low=axis.low, high=axis.high, most_points=MOST_POINTS)
        if isinstance(found, Settled):
            return axis.arm(found.position)
        measured = measure(stage, progress, axis.arm(found.position))
        if not isinstance(measured, Measured):
            return measured
        if not scores and not measured.finished:
            return Halt(f"the baseline did not finish: {'; '.join(measured.died)}")
        assert isinstance(found, Probe)
        value = measured.score.value
        scores[found.position] = math.log(value) if measured.feasible and value > 0 else math.nan


def _confirm(stage: Stage, progress: Progress, held: Arm, candidate: Arm) -> Comparison | Launch | Wait:
    most = max(1, stage.budget.seeds)
    for seeds in range(1, most + 1):
        arms = [measure(stage, progress, a, seeds) for a in (candidate, held)]
        for arm in arms:
            if not isinstance(arm, Measured):
                return arm
        ones, zeros = ([_estimate(stage, f) for f in a.finished] for a in arms if isinstance(a, Measured))
        seen = compare(ratio(ones, zeros, pooled_variance=pooled_spread([ones, zeros])), looks=seeds, max_looks=most)
        if seen.verdict is not Verdict.NOT_ENOUGH_DATA:
            return seen
    return seen


def _estimate(stage: Stage, finished: object) -> Estimate:
    score = objective.score(stage, finished)  # type: ignore[arg-type]
    return Estimate(score.value, score.standard_error, 10)


def _freeze(stage: Stage, progress: Progress, held: Arm) -> Decision:
    base, best = measure(stage, progress, BASELINE), measure(stage, progress, held)
    if not isinstance(best, Measured):
        return best
    if not isinstance(base, Measured):
        return base
    return Freeze(Choice(held.settings, held.requested, best.score, base.score, best.trial_ids, held.note))
