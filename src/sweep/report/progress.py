"""Live progress: one changing line in a terminal, plain lines elsewhere. `progress_display` picks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core.curve import METRICS
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.plan import CampaignPlan
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.ports import CampaignInfo
from sweep.report.pace import Pace, as_time

LINES_A_TRIAL = 4
"""Plain lines that a trial's steps may print: a log file stays readable."""


class Progress:
    """Says what happens. `say` prints a line that stays, `show` one that the next replaces (plain: it stays too)."""

    def __init__(
        self,
        say: Callable[[str], None],
        show: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._show = show
        self._clock = clock
        self._pace = Pace()
        self._number = 0

    def campaign_started(self, info: CampaignInfo) -> None:
        """Name the campaign, its folder and stages."""
        self._say(f"campaign {info.name} in {info.folder}: {', '.join(info.stages)}")

    def stage_started(self, stage: Stage) -> None:
        """Name the stage and its budget."""
        self._number, self._pace = 0, Pace()
        self._say(f"stage {stage.name}: up to {stage.budget.most_trials} trials of {stage.budget.steps} steps")

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        """Name the trial and what it changes."""
        self._number += 1
        self._pace = self._pace.trial_started(self._clock())
        self._say(f"  trial {self._number} of at most {stage.budget.most_trials}  {trial.id}  {described(proposal)}")

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:
        """Step, reward, KL and time left."""
        self._pace = self._pace.stepped(self._clock())
        left = self._pace.seconds_left(trial.steps - step, stage.budget.most_trials - self._number)
        line = (
            f"{stage.name}  trial {self._number}/{stage.budget.most_trials}  step {step}/{trial.steps}"
            f"  reward {_number(metrics, 'score')}  KL {_number(metrics, 'kl_nats')}  at most {as_time(left)} left"
        )
        if self._show is not None:
            self._show(line)
        elif step % max(1, trial.steps // LINES_A_TRIAL) == 0:
            self._say(f"    {line}")

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        """Why the trial is tried again."""
        self._say(f"    {trial.id} is tried again ({failure.failure_class.value}): {failure.message}")

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """How it ended."""
        self._pace = self._pace.trial_ended(self._clock())
        match outcome:
            case Finished():
                value = "" if score is None else f", {stage.objective} {score.value:.5g}"
                self._say(f"    {trial.id} finished{value}")
            case Diverged(reason=reason):
                self._say(f"    {trial.id} diverged: {reason}")
            case Failed(failure_class, message):
                self._say(f"    {trial.id} failed ({failure_class.value}): {message}")

    def stage_frozen(self, stage: Stage, winner: Winner) -> None:
        """The winner and why."""
        settings = _settings(winner.choice.settings.to_json()) or "the baseline"
        self._say(f"  frozen {stage.name}: {settings}; {winner.choice.reason}")

    def campaign_ended(self, exit_code: int) -> None:
        """Nothing more: the table follows."""
        if self._show is not None:
            self._show("")


def progress_display(plan: CampaignPlan) -> Progress:
    """The display for where standard output goes."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        return Progress(lambda text: print(text, flush=True))
    return Progress(lambda text: console.print(f"\r\x1b[K{text}", markup=False), _status(sys.stdout))


def _status(stream: Any) -> Callable[[str], None]:
    def show(text: str) -> None:
        stream.write(f"\r\x1b[K{text}")
        stream.flush()

    return show


def described(proposal: Proposal) -> str:
    """What the candidate changes, with verl's last key part, and why it is tried."""
    settings = _settings(proposal.settings.to_json()) or "baseline"
    return f"{settings}  seed {proposal.seed}" + (f"  ({proposal.note})" if proposal.note else "")


def _settings(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in settings.items())


def _number(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(METRICS[name])
    return "-" if value is None else f"{value:.4g}"
