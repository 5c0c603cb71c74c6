"""`RehearsalEngine`: implements `sweep.ports.Engine` in process on simulated trials, without waiting."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sweep import __version__
from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS, Curve
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, simulate
from sweep.engines.rehearsal.surface import USUAL_STEPS, Surface, Truth
from sweep.engines.rehearsal.surfaces import SURFACES
from sweep.errors import EngineError
from sweep.ports import Checkpoint, RuntimeEvent, RuntimeReady, Stepped, TrialEnded, TrialStarted

COLD_KEYS = (keys.MAX_BATCHED_TOKENS, keys.MAX_SEQS, keys.MEMORY_UTILIZATION, keys.TENSOR_PARALLEL)
"""Settings of the rollout server, which a started verl cannot change."""

START_SECONDS = 240.0
"""What a start of the real engine takes on one GPU; reported, not waited for."""

STEPS_A_READ = 25
"""Steps handed over at once; a stop takes effect at the next read."""


class RehearsalEngine:
    """Starts simulated runtimes, at most `slots` at a time."""

    def __init__(
        self,
        surface: Surface = SURFACES["separable"],
        noise: Noise | None = None,
        *,
        slots: int = 1,
        base: Overrides = NOTHING,
        steps: int = USUAL_STEPS,
    ) -> None:
        """`base` and `steps`: the campaign's own configuration and trial length, around which the surface is laid."""
        self.surface, self.noise, self.slots = surface.around(base, steps), noise or Noise(), slots
        self._started: list[RehearsalRuntime] = []

    def start(
        self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None
    ) -> RehearsalRuntime:
        """A simulated runtime whose base configuration is the trial's.

        Raises:
            EngineError: if all slots are taken.
        """
        self._started = [r for r in self._started if not r.closed]
        if len(self._started) >= self.slots:
            raise EngineError(f"the rehearsal has {self.slots} slots and all of them are taken; close a runtime first")
        runtime = RehearsalRuntime(f"rehearsal-{trial.id}", self.surface, self.noise, trial.overrides, folder, reuse)
        self._started.append(runtime)
        return runtime

    def check(self, trial: Trial) -> None:
        """Simulated trials need no room."""

    def checkpoint(self, trial: Trial, folder: Path) -> None:
        """Simulated trials save nothing."""

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, RehearsalRuntime]:
        """None: a simulated runtime lives in the process of its driver."""
        return {}

    def truth(self, settings: Overrides) -> Truth:
        """What the settings really lead to, which no trial may look at."""
        return self.surface.truth(settings)

    def notices(self) -> Sequence[str]:
        """None."""
        return ()

    def versions(self) -> Mapping[str, str]:
        """The simulator's own version and surface: all that a result depends on, with the noise."""
        return {"sweep-rehearsal": __version__, "surface": self.surface.name, "noise": repr(self.noise)}

    def close(self) -> None:
        """End every runtime."""
        for runtime in self._started:
            runtime.close()


class RehearsalRuntime:
    """A simulated verl: serves every trial whose rollout settings are its own."""

    def __init__(self, name: str, surface: Surface, noise: Noise, base: Overrides, folder: Path, reuse: bool) -> None:
        self.name, self.log_path, self.closed = name, folder / "console.log", False
        self._surface, self._noise, self._base, self._reuse = surface, noise, base, reuse
        self._served = 0
        self._log: list[str] = []
        self._waiting: deque[Trial] = deque()
        self._playing: Iterator[RuntimeEvent] = iter([RuntimeReady(START_SECONDS)])
        self._stop: tuple[str, str] = ("", "")

    def serves(self, trial: Trial) -> bool:
        """Whether the trial needs no other rollout server, and this runtime may be used again."""
        if self.closed or (self._served and not self._reuse):
            return False
        return all(trial.overrides.get(k) == self._base.get(k) for k in COLD_KEYS)

    def submit(self, trial: Trial, folder: Path) -> None:
        """Queue the trial; a simulated one writes no files."""
        self._waiting.append(trial)

    def events(self, wait_seconds: float) -> Sequence[RuntimeEvent]:
        """The next few events at once; a simulated runtime never waits."""
        if self.closed:
            return []
        events: list[RuntimeEvent] = []
        while len(events) < STEPS_A_READ:
            event = next(self._playing, None)
            if event is not None:
                events.append(event)
            elif self._waiting:
                self._playing = self._play(self._waiting.popleft())
            else:
                break
        return events

    def stop_trial(self, trial_id: str, reason: str) -> None:
        """Have the trial end before its next step."""
        self._stop = (trial_id, reason)

    def log_text(self) -> str:
        """The errors that trials died of."""
        return "\n".join(self._log)

    def close(self) -> None:
        """End the runtime."""
        self.closed = True

    def _play(self, trial: Trial) -> Iterator[RuntimeEvent]:
        result = simulate(self._surface, self._noise, trial)
        yield TrialStarted(trial.id, 0.0, warm=self._served > 0)
        self._served += 1
        for row, step in enumerate(result.curve.steps):
            if self._stop[0] == trial.id:
                yield TrialEnded(trial.id, step - 1, stopped_by=self._stop[1])
                return
            yield Stepped(trial.id, step, _row(result.curve, row))
        if result.error:
            self._log.append(result.error)
        yield TrialEnded(trial.id, result.curve.last_step, error=result.error, reusable=not result.error)


def _row(curve: Curve, row: int) -> dict[str, float]:
    """One step under verl's metric names, as its file logger writes it."""
    values = {metric: getattr(curve, name)[row] for name, metric in METRICS.items()}
    return {m: v for m, v in values.items() if not math.isnan(v) or m == METRICS["grad_norm"]}
