"""What a person sees while a campaign runs."""

from __future__ import annotations

import pytest

from sweep.core.curve import Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.core.winner import Score
from sweep.report.pace import Pace, as_time
from sweep.report.progress import Progress, described

STAGE = Stage(
    "kl", (Knob("algorithm.kl_ctrl.kl_coef", 0.0005, 0.01),), SearchRule(), "reward_in_band", StageBudget(5, 40)
)
TRIAL = Trial(NOTHING, 1, 40)
METRICS = {"critic/score/mean": 0.25, "actor/reward_kl_penalty": 0.07}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


def test_plain_lines_name_stage_trial_step_reward_kl_and_time_left():
    said: list[str] = []
    progress = Progress(said.append, clock=Clock())
    progress.stage_started(STAGE)
    progress.trial_started(STAGE, Proposal(NOTHING, 1), TRIAL, None)
    for step in range(1, 41):
        progress.stepped(STAGE, TRIAL, step, METRICS)
    shown = [line for line in said if "step 20/40" in line]
    assert shown == ["    kl  trial 1/5  step 20/40  reward 0.25  KL 0.07  at most 40 s left"]
    assert sum("step" in line and "reward" in line for line in said) == 4


def test_a_terminal_gets_every_step_on_one_line():
    said: list[str] = []
    shown: list[str] = []
    progress = Progress(said.append, shown.append, Clock())
    progress.trial_started(STAGE, Proposal(NOTHING, 1), TRIAL, None)
    for step in range(1, 41):
        progress.stepped(STAGE, TRIAL, step, METRICS)
    assert len(shown) == 40
    assert not any("reward" in line for line in said)


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Finished(Curve()), "finished, reward_in_band 0.5"),
        (Diverged(Curve(), "non-finite loss"), "diverged: non-finite loss"),
        (Failed(FailureClass.OOM_GPU, "no memory left"), "failed (gpu out of memory): no memory left"),
    ],
)
def test_every_ending_is_said(outcome, says):
    said: list[str] = []
    Progress(said.append).trial_ended(STAGE, TRIAL, outcome, Score(0.5) if isinstance(outcome, Finished) else None)
    assert says in said[0]


def test_a_candidate_is_described_by_what_it_changes():
    proposal = Proposal(Overrides.of({"algorithm.kl_ctrl.kl_coef": 0.002}), 3, note="start value")
    assert described(proposal) == "kl_coef=0.002  seed 3  (start value)"
    assert described(Proposal(NOTHING, 1)).startswith("baseline")


def test_the_time_left_counts_the_steps_of_this_trial_and_whole_trials_after_it():
    pace = Pace().trial_started(0.0)
    assert pace.seconds_left(10, 1) is None
    for now in (5.0, 7.0, 9.0):
        pace = pace.stepped(now)
    assert pace.seconds_left(10, 0) == 20.0
    pace = pace.trial_ended(30.0)
    assert pace.seconds_left(0, 2) == 60.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (4.4, "4 s"), (89, "89 s"), (90, "2 min"), (4800, "1 h 20 min")]
)
def test_times_are_readable(seconds, text):
    assert as_time(seconds) == text
