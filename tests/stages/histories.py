"""Made-up trials for rule tests: curves with a chosen gain and step time, and a driver that plays a rule to its end."""

from __future__ import annotations

from collections.abc import Callable

from sweep.core.curve import Curve
from sweep.core.decision import Ask, Decision, Freeze, Halt, Launch, Wait
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.stages import decide

STEPS = 40


def line(gain: float, step_seconds: float, *, steps: int = STEPS, wobble: float = 0.0, **series: float) -> Finished:
    """A run whose score rises by `gain` in a straight line, one step every `step_seconds`."""
    rows = []
    for i in range(1, steps + 1):
        share = (i - 1) / (steps - 1)
        score = 0.1 + gain * share + wobble * (-1) ** i
        row = {"critic/score/mean": score, "timing_s/step": step_seconds, "timing_s/gen": step_seconds / 2}
        rows.append((i, row | {k: v for k, v in series.items()}))
    return Finished(Curve.from_rows(rows), steps * step_seconds)


def died(message: str = "no memory left") -> Failed:
    return Failed(FailureClass.OOM_GPU, message)


def nan_run() -> Diverged:
    return Diverged(Curve(), "non-finite actor/grad_norm")


Answer = Callable[[Proposal, Overrides], Outcome]


def play(stage: Stage, base: Overrides, answer: Answer, *, seeds: tuple[int, ...] = (1,), most: int = 200) -> Played:
    """Run a rule to its end, one trial at a time; `answer` says how each trial ends."""
    records: tuple[Record, ...] = ()
    for _ in range(most):
        decision = decide(stage, Progress(base, records, seeds))
        match decision:
            case Launch(proposals):
                records += tuple(_run(stage, base, p, answer) for p in proposals)
            case Ask():
                raise AssertionError("no sampler here")
            case Wait():
                raise AssertionError("nothing is running, yet the rule waits")
            case Freeze() | Halt():
                return Played(decision, records)
    raise AssertionError(f"no end after {most} decisions")


def _run(stage: Stage, base: Overrides, proposal: Proposal, answer: Answer) -> Record:
    trial = Trial(base.merged(proposal.settings), proposal.seed, stage.budget.steps)
    return Record(trial, proposal.settings, proposal.requested, proposal.note, answer(proposal, trial.overrides))


class Played:
    """How a rule ended, and the trials it wanted."""

    def __init__(self, decision: Decision, records: tuple[Record, ...]) -> None:
        self.decision = decision
        self.records = records

    def tried(self, key: str) -> list[object]:
        """The values of a key over the candidates, in order, each arm once."""
        values = [r.settings.get(key) for r in self.records if r.settings != NOTHING]
        return list(dict.fromkeys(values))

    @property
    def choice(self):
        assert isinstance(self.decision, Freeze), self.decision
        return self.decision.choice
