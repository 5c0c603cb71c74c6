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
from sweep.report.progress import Progress, described, progress_display
from tests.fakes_store import MemoryStore

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
    assert shown == ["    kl  trial 1/5  step 20/40  reward 0.25  KL 0.07  at most 6 min left"]
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
    assert pace.seconds_left(10, 1, 40) is None
    for now in (5.0, 7.0, 9.0):
        pace = pace.stepped(now)
    assert pace.seconds_left(10, 0, 40) == 20.0
    assert pace.seconds_left(10, 2, 40) == 20.0 + 2 * 80.0
    pace = pace.trial_ended(30.0)
    assert pace.seconds_left(0, 2, 40) == 60.0
    assert pace.seconds_left(0, 2, 40, at_once=2) == 30.0


def test_trials_that_run_at_once_keep_their_own_number_and_pace():
    said: list[str] = []
    shown: list[str] = []
    clock = Clock()
    progress = Progress(said.append, shown.append, clock)
    other = Trial(NOTHING, 2, 40)
    progress.stage_started(STAGE)
    progress.trial_started(STAGE, Proposal(NOTHING, 1), TRIAL, None)
    progress.trial_started(STAGE, Proposal(NOTHING, 2), other, None)
    for step in range(1, 31):
        progress.stepped(STAGE, TRIAL, step, METRICS)
        progress.stepped(STAGE, other, step, METRICS)
    assert "trial 1/5  step 30/40" in shown[-2] and "trial 2/5  step 30/40" in shown[-1]
    assert shown[-1].endswith("at most 5 min left")  # 10 steps of 4 s, then three trials of 160 s, two at once
    progress.trial_ended(STAGE, TRIAL, Finished(Curve()), Score(0.5))
    progress.stepped(STAGE, other, 31, METRICS)
    assert "trial 2/5  step 31/40" in shown[-1]


def test_a_resumed_campaign_goes_on_counting_where_the_store_is(tmp_path, capsys):
    store = MemoryStore()
    for seed in (1, 2, 3):
        store.intend(STAGE, Proposal(NOTHING, seed), Trial(NOTHING, seed, 40))
    progress = progress_display(store)
    progress.trial_started(STAGE, Proposal(NOTHING, 3), Trial(NOTHING, 3, 40), tmp_path)
    assert "trial 3 of at most 5" in capsys.readouterr().out


def test_a_reader_that_went_away_does_not_end_the_campaign(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def isatty(self):
            return False

    monkeypatch.setattr("sys.stdout", Closed())
    progress_display(MemoryStore()).stage_started(STAGE)


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (4.4, "4 s"), (89, "89 s"), (90, "2 min"), (4800, "1 h 20 min")]
)
def test_times_are_readable(seconds, text):
    assert as_time(seconds) == text
