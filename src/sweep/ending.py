"""How a trial's end becomes its outcome: `Run`, `Ending`, `outcome_of`, `deserves_a_cold_run`. Values in, a value out.

The step that was reached decides, not the exit code: verl leaves with exit code 0 when its epochs run out, and may
die noisily after the last step.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from sweep.core.curve import Curve
from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.trial import Trial
from sweep.ports import Checkpoint

Classify: TypeAlias = Callable[[str], Cause]
"""From a runtime's console to what it shows of the failure."""


@dataclass(slots=True)
class Run:
    """One attempt at a trial: what was seen of it so far. Times are readings of the fleet's clock, in seconds."""

    trial: Trial
    cold: bool = False  # the second attempt, after a warm or a resumed one failed
    due: float = 0.0  # not to be started earlier
    checkpoint: Checkpoint | None = None
    given_at: float = 0.0
    deadline: float = 0.0
    ready: bool = False
    started_at: float | None = None
    warm: bool = False
    machine: str = ""
    lost_seconds: float = 0.0  # what the first attempt took that has come to nothing
    rows: dict[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """The highest step logged; 0 if none was."""
        return max(self.rows, default=0)

    @property
    def complete(self) -> bool:
        """Whether the last step of the trial was logged."""
        return self.last_step >= self.trial.steps


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an attempt is over. `silent_seconds` is set when it was ended for saying nothing for so long."""

    error: str = ""
    stopped_by: str = ""
    reusable: bool = False
    gone: bool = False
    exit_code: int | None = None
    silent_seconds: float | None = None


def outcome_of(run: Run, ending: Ending, now: float, log: str, log_path: Path, classify: Classify) -> Outcome:
    """`Diverged` if something stopped it, `Finished` if its last step was logged, else `Failed` with class and log."""
    trial, curve = run.trial, Curve.from_rows(run.rows.items())
    if ending.stopped_by:
        return Diverged(curve, ending.stopped_by, _wall_seconds(run, curve, now))
    if run.complete:
        return Finished(curve, _wall_seconds(run, curve, now), run.machine)
    why = _why(run, ending, log, classify)
    where = f"at step {run.last_step} of {trial.steps}" if run.ready or run.rows else "before its first step"
    message = f"trial {trial.id} ended {where}: {why.text}; log: {log_path}"
    own = curve.since(run.checkpoint.step + 1) if run.checkpoint else curve  # others paid for the steps before
    wall_seconds = _wall_seconds(run, own, now)
    return Failed(why.failure_class, message, run.last_step, str(log_path), wall_seconds, why.fix, why.retry, why.abort)


def _wall_seconds(run: Run, curve: Curve, now: float) -> float:
    """From the first step to the end, or what the curve's steps took by their own account where that is more.

    Of an adopted or a resumed trial the driver has seen the rest alone: what was before it is told again in no time.
    """
    seen = 0.0 if run.started_at is None else now - run.started_at
    return max(seen, sum(seconds for seconds in curve.step_seconds if math.isfinite(seconds)))


def _why(run: Run, ending: Ending, log: str, classify: Classify) -> Cause:
    if ending.silent_seconds is not None:
        doing = "start" if not run.ready else "log a step"
        return Cause(FailureClass.HANG, f"its runtime did not {doing} within {ending.silent_seconds:g} s")
    own = ending.reusable and ending.error  # such a runtime's console holds what earlier trials left
    seen = classify(ending.error if own else "\n".join(t for t in (log, ending.error) if t))
    text = "; ".join(t for t in (_last_words(ending), seen.text) if t)
    if _ended_from_outside(ending) and seen.failure_class not in OUT_OF_MEMORY:
        return Cause(FailureClass.ENV_FAULT, text)  # whatever else its console says, that did not end it
    return replace(seen, text=text)


def _ended_from_outside(ending: Ending) -> bool:
    """Whether somebody killed the process or its node is lost: nothing that the trial itself could do."""
    return ending.gone and (ending.exit_code is None or ending.exit_code in KILLED)


OUT_OF_MEMORY = (FailureClass.OOM_GPU, FailureClass.OOM_HOST)
"""What the kernel or Ray kills a process for, saying so elsewhere on the console."""

KILLED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
"""Exit codes of a process that was killed, as Python and as a shell count them."""


def _last_words(ending: Ending) -> str:
    if ending.gone:
        code = "an unknown exit code" if ending.exit_code is None else f"exit code {ending.exit_code}"
        return f"its runtime ended with {code}" + (f" ({ending.error})" if ending.error else "")
    return ending.error or "the trainer left its loop without an error"


def deserves_a_cold_run(run: Run, ending: Ending, outcome: Outcome, reused: bool) -> bool:
    """Whether the failure may be the runtime's past rather than the trial's own doing, and this is the first attempt.

    False if the process was killed from outside: that says nothing about its past. True for a failed attempt on a
    runtime with a reset path that cannot serve on, if the attempt was warm or did not get past its reset; and for one
    that did not get past loading its checkpoint.
    """
    if not isinstance(outcome, Failed) or ending.reusable or run.cold or _ended_from_outside(ending):
        return False
    if run.checkpoint is not None and run.started_at is None:
        return True
    if not reused:
        return False
    return run.warm or (run.ready and run.started_at is None)
