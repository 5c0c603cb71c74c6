"""`Fleet`: hands trials to runtimes and turns their events into outcomes; `Started`, `Stepped`, `Ended`.

A queued trial goes to an idle runtime that serves it; only if none does, an idle one is closed and another started,
so a queue costs one start for each base configuration in it. What to run next is decided elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sweep import ports
from sweep.core.curve import Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Outcome
from sweep.core.plan import Timeouts
from sweep.core.trial import Trial
from sweep.ending import Classify, Ending, Run, deserves_a_cold_run, outcome_of
from sweep.errors import ConfigError, EngineError

POLL_SECONDS = 0.2
"""Longest wait on one runtime before the next is looked at; bounds how late a time-out is noticed. Ours."""


@dataclass(frozen=True, slots=True)
class Started:
    """The trial's first step is about to begin, `start_seconds` after the trial was handed to a runtime.

    A trial that is run again cold starts a second time: what was logged before is void, and what it took since it
    was last said to start is part of `start_seconds`.
    """

    trial: Trial
    warm: bool
    start_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stepped:
    """One training step was logged: verl's metric names and values."""

    trial: Trial
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ended:
    """The trial is over for good; it is not run again by the fleet.

    `start_seconds` were spent on a start that did not come to a first step; `outcome.wall_seconds` is without them.
    """

    trial: Trial
    outcome: Outcome
    start_seconds: float = 0.0


FleetEvent: TypeAlias = Started | Stepped | Ended


@dataclass(slots=True)
class _Seat:
    """A runtime and the attempt that it serves, if any."""

    runtime: ports.Runtime
    reuse: bool
    run: Run | None = None
    served: int = 0


class Fleet:
    """At most `engine.slots` runtimes. Not thread-safe; nothing happens outside `wait`."""

    def __init__(
        self,
        engine: ports.Engine,
        *,
        folder_of: Callable[[Trial], Path],
        classify: Classify,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        reuse: bool = True,
    ) -> None:
        self._engine = engine
        self._folder_of = folder_of
        self._classify = classify
        self._timeouts = timeouts or Timeouts()
        self._clock = clock
        self._sleep = sleep
        self._reuse = reuse
        self._queue: list[Run] = []
        self._seats: list[_Seat] = []
        self._news: list[FleetEvent] = []
        self._trouble: EngineError | None = None

    def submit(self, trial: Trial, *, wait_seconds: float = 0.0, resume: bool = False) -> None:
        """Queue the trial, not to be started for so long; with `resume` from its own last checkpoint if it has one."""
        checkpoint = self._engine.checkpoint(trial, self._folder_of(trial)) if resume else None
        self._queue.append(Run(trial, due=self._clock() + wait_seconds, checkpoint=checkpoint))

    def adopt(self, trials: Sequence[Trial]) -> frozenset[str]:
        """Ids of those trials that still run for an earlier driver; they go on as if submitted here.

        What else an earlier driver of the campaign left running is ended.
        """
        found = self._engine.adopt({trial: self._folder_of(trial) for trial in trials})
        for trial in trials:
            if trial.id in found:
                run = Run(trial, given_at=self._clock(), deadline=self._clock() + self._timeouts.start_seconds)
                self._seats.append(_Seat(found[trial.id], self._reuse, run, served=1))
        return frozenset(found)

    def room(self) -> int:
        """How many more trials could start at once if they were submitted now.

        A trial that waits for its next attempt counts: no other shall be decided on without its result.
        """
        return max(0, self._engine.slots - len(self._queue) - len(self._busy()))

    def next_of(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those of the trials to submit now, as many as there is room for: first what a loaded, idle runtime serves."""
        left, served = list(trials), []
        for seat in [s for s in self._seats if s.run is None]:
            match = next((t for t in left if seat.runtime.serves(t)), None)
            if match is not None:
                left.remove(match)
                served.append(match)
        return [*served, *left][: self.room()]

    def runtime_of(self, trial_id: str) -> str:
        """Name of the runtime that serves the trial now, empty if none does; another thread may ask."""
        for seat in list(self._seats):
            run = seat.run  # read once: it may be gone at any moment
            if run is not None and run.trial.id == trial_id:
                return seat.runtime.name
        return ""

    def wait(self, seconds: float) -> list[FleetEvent]:
        """The next events, waiting at most about so long for the first; empty at once if there is no trial.

        Raises:
            EngineError: if a runtime could not be ended, once everything that it told has been handed out.
        """
        if self._trouble is not None:
            raise self._trouble
        until = self._clock() + seconds
        while True:
            self._dispatch()
            patience = max(0.0, min(until - self._clock(), POLL_SECONDS))
            if self._queue and not self._busy() and not self._news:
                self._sleep(patience)
            self._collect(patience)
            nothing_left = not self._queue and not self._busy()
            if self._news or nothing_left or self._clock() >= until:
                news, self._news = self._news, []
                return news

    def stop(self, trial_id: str, reason: str) -> None:
        """Have the trial end as `Diverged` for this reason: after its current step, at once if it still waits."""
        for seat in self._busy():
            if seat.run and seat.run.trial.id == trial_id:
                seat.runtime.stop_trial(trial_id, reason)
        for run in [r for r in self._queue if r.trial.id == trial_id]:
            self._queue.remove(run)
            self._news.append(Ended(run.trial, Diverged(Curve(), reason), run.lost_seconds))

    def close(self) -> None:
        """End every runtime; trials that were running or waiting get no further event. Safe to call again.

        Raises:
            EngineError: if one of them did not end.
        """
        self._queue.clear()
        for seat in list(self._seats):
            self._dismiss(seat)
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _busy(self) -> list[_Seat]:
        return [s for s in self._seats if s.run is not None]

    def _due(self) -> list[Run]:
        now = self._clock()
        return [r for r in self._queue if r.due <= now]

    def _dispatch(self) -> None:
        for seat in [s for s in self._seats if s.run is None]:
            warm = (r for r in self._due() if not r.cold and r.checkpoint is None and seat.runtime.serves(r.trial))
            match = next(warm, None)
            if match is not None:
                self._queue.remove(match)
                self._give(seat, match)
        while (due := self._due()) and self._make_room():
            self._queue.remove(due[0])
            self._start(due[0])

    def _make_room(self) -> bool:
        """Whether another runtime may start, after closing an idle one (it serves nothing in the queue) if need be."""
        if len(self._seats) < self._engine.slots:
            return True
        idle = next((s for s in self._seats if s.run is None), None)
        if idle is not None:
            self._dismiss(idle)
        return idle is not None

    def _start(self, run: Run) -> None:
        run.given_at = self._clock()
        reuse = self._reuse and not run.cold and run.checkpoint is None
        folder = self._folder_of(run.trial)
        try:
            runtime = self._engine.start(run.trial, folder, reuse=reuse, checkpoint=run.checkpoint)
        except (EngineError, ConfigError) as error:
            message = f"trial {run.trial.id} could not start: {error}"
            passing = isinstance(error, EngineError)
            failure_class = FailureClass.ENV_FAULT if passing else FailureClass.INFEASIBLE_CONFIG
            self._news.append(Ended(run.trial, Failed(failure_class, message), run.lost_seconds))
            return
        seat = _Seat(runtime, reuse)
        self._seats.append(seat)
        self._give(seat, run)
        run.deadline = run.given_at + self._timeouts.start_seconds

    def _give(self, seat: _Seat, run: Run) -> None:
        run.given_at = self._clock()
        run.ready = run.warm = seat.served > 0
        run.deadline = run.given_at + self._timeouts.step_seconds
        seat.run = run
        seat.served += 1
        seat.runtime.submit(run.trial, self._folder_of(run.trial))

    def _collect(self, wait_seconds: float) -> None:
        share = wait_seconds / max(1, len(self._busy()))
        for seat in list(self._seats):
            patience = share if seat.run is not None and not self._news else 0.0
            for event in seat.runtime.events(patience):
                self._on(seat, event)
            self._end_if_silent(seat)

    def _on(self, seat: _Seat, event: ports.RuntimeEvent) -> None:
        run, now = seat.run, self._clock()
        if isinstance(event, ports.RuntimeGone):
            self._on_gone(seat, event)
        elif run is None:
            return
        elif isinstance(event, ports.RuntimeReady):
            run.ready, run.deadline = True, now + self._timeouts.step_seconds
        elif event.trial_id != run.trial.id:
            return
        elif isinstance(event, ports.TrialStarted):
            run.ready, run.started_at, run.deadline = True, now, now + self._timeouts.step_seconds
            run.warm, run.machine = event.warm, event.machine
            run.rows.clear()
            self._news.append(Started(run.trial, run.warm, run.lost_seconds + now - run.given_at))
        elif isinstance(event, ports.Stepped):
            run.rows[event.step] = event.metrics
            run.deadline = now + (self._timeouts.end_seconds if run.complete else self._timeouts.step_seconds)
            self._news.append(Stepped(run.trial, event.step, event.metrics))
        else:
            self._finish(seat, Ending(event.error, event.stopped_by, event.reusable))

    def _on_gone(self, seat: _Seat, event: ports.RuntimeGone) -> None:
        if seat.run is not None:
            self._finish(seat, Ending(event.reason, gone=True, exit_code=event.exit_code))
        else:
            self._dismiss(seat)

    def _end_if_silent(self, seat: _Seat) -> None:
        if seat.run is None or self._clock() < seat.run.deadline:
            return
        limits = self._timeouts
        seconds = limits.start_seconds if not seat.run.ready else limits.step_seconds
        self._finish(seat, Ending(silent_seconds=seconds))

    def _finish(self, seat: _Seat, ending: Ending) -> None:
        run, seat.run = seat.run, None
        assert run is not None
        now, log = self._clock(), "" if run.complete or ending.stopped_by else seat.runtime.log_text()
        outcome = outcome_of(run, ending, now, log, seat.runtime.log_path, self._classify)
        starting = run.lost_seconds + now - run.given_at if run.started_at is None else 0.0
        if deserves_a_cold_run(run, ending, outcome, seat.reuse):
            self._queue.insert(0, Run(run.trial, cold=True, lost_seconds=starting + outcome.wall_seconds))
        else:
            self._news.append(Ended(run.trial, outcome, starting))
        if not (seat.reuse and ending.reusable):
            self._dismiss(seat)

    def _dismiss(self, seat: _Seat) -> None:
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        try:
            seat.runtime.close()
        except EngineError as error:
            self._trouble = self._trouble or error  # what the runtime told before must not be lost
