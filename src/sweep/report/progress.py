"""Live progress: one changing line in a terminal, plain lines elsewhere. `progress_display` picks."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from sweep.core.curve import metric_of
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.ports import CampaignInfo, Store
from sweep.report.pace import Pace, as_time

LINES_A_TRIAL = 4
"""Plain lines that a trial's steps may print: a log file stays readable."""


Place = Callable[[Stage, Trial], int]
"""Which trial of its stage this is, from 1."""


class Progress:
    """Says what happens. `say` prints a line that stays, `show` one that the next replaces (plain: it stays too).

    `place` numbers a stage's trials; without it they are counted as they start. Several may run at once.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        show: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        place: Place | None = None,
    ) -> None:
        self._say = say
        self._show = show
        self._clock = clock
        self._place = place
        self._started = 0
        self._numbers: dict[str, int] = {}
        self._paces: dict[str, Pace] = {}
        self._took: tuple[float, ...] = ()

    def campaign_started(self, info: CampaignInfo) -> None:
        """Name the campaign, its folder and stages."""
        self._say(f"campaign {info.name} in {info.folder}: {', '.join(info.stages)}")

    def stage_started(self, stage: Stage) -> None:
        """Name the stage and its budget."""
        self._started, self._numbers, self._paces, self._took = 0, {}, {}, ()
        self._say(f"stage {stage.name}: up to {stage.budget.most_trials} trials of {stage.budget.steps} steps")

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        """Name the trial and what it changes."""
        self._started += 1
        number = self._numbers[trial.id] = self._place(stage, trial) if self._place else self._started
        self._paces[trial.id] = Pace(trial_seconds=self._took).trial_started(self._clock())
        self._say(f"  trial {number} of at most {_most(stage, number)}  {trial.id}  {described(proposal)}")

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:
        """Step, reward, KL and time left."""
        pace = self._paces[trial.id] = self._paces.get(trial.id, Pace()).stepped(self._clock())
        number = self._numbers.get(trial.id, self._started)
        most = _most(stage, number)
        later = max(0, most - max(self._numbers.values(), default=number))
        left = pace.seconds_left(trial.steps - step, later, trial.steps, at_once=len(self._paces))
        line = (
            f"{stage.name}  trial {number}/{most}  step {step}/{trial.steps}"
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
        pace = self._paces.pop(trial.id, None)
        self._took += pace.trial_ended(self._clock()).trial_seconds[len(pace.trial_seconds) :] if pace else ()
        match outcome:
            case Finished():
                value = "" if score is None else f", {stage.objective} {score.value:.5g}"
                self._say(f"    {trial.id} finished{value}")
            case Diverged(reason=reason, given_up=given_up):
                self._say(f"    {trial.id} {'was given up' if given_up else 'diverged'}: {reason}")
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


def progress_display(store: Store) -> Progress:
    """The display for where standard output goes; trials are numbered as the store has them, also after a resume."""
    from rich.console import Console

    def place(stage: Stage, trial: Trial) -> int:
        ids = [record.trial.id for record in store.records(stage)]
        return 1 + ids.index(trial.id) if trial.id in ids else len(ids)

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        return Progress(say, place=place)
    lasting = _quietly(lambda text: console.print(f"\r\x1b[K{text}", markup=False))
    return Progress(lasting, _quietly(_status(sys.stdout)), place=place)


def say(text: str) -> None:
    """Print a line that stays, or nothing where nobody reads any more: what a campaign did is in its files."""
    try:
        print(text, flush=True)
    except OSError:
        if (
            sys.__stdout__ is not None and sys.stdout is sys.__stdout__
        ):  # what is left in its buffer would be an error again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def _quietly(write: Callable[[str], None]) -> Callable[[str], None]:
    """The writer, silent from the moment when nobody reads any more (`| head`) or the disk of a log is full."""

    def written(text: str) -> None:
        with suppress(OSError):
            write(text)

    return written


def _status(stream: TextIO) -> Callable[[str], None]:
    def show(text: str) -> None:
        width = shutil.get_terminal_size().columns - 1  # a wrapped line could not be replaced
        stream.write(f"\r\x1b[K{text[:width]}")
        stream.flush()

    return show


def _most(stage: Stage, number: int) -> int:
    """The stage's trials at most; those that the machine ended are not counted against its budget, and make it more."""
    return max(stage.budget.most_trials, number)


def described(proposal: Proposal) -> str:
    """What the candidate changes, with verl's last key part, and why it is tried."""
    settings = _settings(proposal.settings.to_json()) or "baseline"
    return f"{settings}  seed {proposal.seed}" + (f"  ({proposal.note})" if proposal.note else "")


def _settings(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in settings.items())


def _number(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(metric_of(name, metrics))
    return "-" if value is None else f"{value:.4g}"
