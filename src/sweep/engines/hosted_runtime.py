"""`HostedRuntime`: a process with a mailbox behind the runtime port; translates its messages into events.

Writes what comes home: a trial's metrics to `metrics.jsonl` in its folder, the console to the runtime's log file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sweep.core.trial import Trial
from sweep.engines.hosting import Host
from sweep.errors import EngineError
from sweep.ports import RuntimeEvent, RuntimeGone, RuntimeReady, Stepped, TrialEnded, TrialStarted

METRICS_FILE = "metrics.jsonl"
"""One line a step in the trial's folder: `{"version": 1, "step": 7, "data": {verl's name: value}}`."""

LOG_TEXT_BYTES = 1 << 20
"""How much of the console's end is kept at hand to explain a failure."""

LOG_SECONDS = 2.0
"""How often the console is brought home while nothing else happens. Ours."""

END_SECONDS = 15.0
"""How long an idle process may take to leave by itself before it is killed; verl closes queue and rollout. Ours."""


class HostedRuntime:
    """One process and its trials.

    `command` is what the process is told about a trial; None: it was started with its trial and is told nothing.
    `serves` says whether the process started with the first trial can run the second; None: it serves no other.
    `evidence` leaves of the console what can explain a failure. `before` are the steps of a trial that was started
    from a checkpoint, told after its start.
    """

    def __init__(
        self,
        host: Host,
        base: Trial,
        log_path: Path,
        *,
        command: Callable[[Trial, Path], Mapping[str, object]] | None,
        serves: Callable[[Trial, Trial], bool] | None,
        evidence: Callable[[str], str] = lambda console: console,
        on_closed: Callable[[], None] = lambda: None,
        before: Mapping[int, Mapping[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = host.name
        self.log_path = log_path
        self._host = host
        self._base = base
        self._command = command
        self._serves = serves
        self._evidence = evidence
        self._on_closed = on_closed
        self._before = dict(before or {})
        self._clock = clock
        self._seen = 0
        self._copied = 0
        self._copied_at = clock()
        self._idle = False
        self._gone = False
        self.closed = False
        self._folders: dict[str, Path] = {}
        self._metrics: TextIO | None = None

    def serves(self, trial: Trial) -> bool:
        """Whether this process can run the trial next, everything that differs being set back or changed."""
        if self._serves is None or self._gone or self.closed:
            return False
        return self._serves(self._base, trial)

    def submit(self, trial: Trial, folder: Path) -> None:
        """Queue the trial."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folders[trial.id] = folder
        self._idle = False
        if self._command is not None:
            self._host.send(self._command(trial, folder), answered=self._seen)

    def adopt(self, trial_id: str, folder: Path) -> None:
        """The process runs the trial already: everything that it told of it is told again."""
        self._folders[trial_id] = folder

    def events(self, wait_seconds: float) -> Sequence[RuntimeEvent]:
        """The new events; a message of a kind that is not known is an error of ours and raises."""
        if self._gone or self.closed:
            return ()
        messages = self._host.receive(self._seen, wait_seconds)
        if messages:
            self._seen = max(m["number"] for m in messages)
        if any(m["type"] in ("gone", "ended") for m in messages) or self._clock() - self._copied_at > LOG_SECONDS:
            self._copy_log()
        return [event for message in messages for event in self._events(message)]

    def stop_trial(self, trial_id: str, reason: str) -> None:
        """Ask the running trial to stop after its current step."""
        self._host.request_stop(trial_id, reason)

    def log_text(self) -> str:
        """The end of the console so far."""
        if not self.closed:
            self._copy_log()
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - LOG_TEXT_BYTES))
            return self._evidence(file.read().decode(errors="replace"))

    def close(self) -> None:
        """End the process, kindly if it waits for a trial, and wait until all that it held is free. Safe to call again.

        Raises:
            EngineError: if it does not come free.
        """
        if self.closed:
            return
        if self._idle and not self._gone:
            self._end_kindly()
        self._copy_log()
        self.closed = True
        self._close_metrics()
        try:
            self._host.close()
            self._on_closed()
        except EngineError as error:
            raise EngineError(f"{error}; log: {self.log_path}") from error

    def _end_kindly(self) -> None:
        self._host.send({"type": "end"})
        until = self._clock() + END_SECONDS
        while not self._gone and (left := until - self._clock()) > 0:
            for message in self._host.receive(self._seen, min(1.0, left)):
                self._seen = message["number"]
                self._gone = self._gone or message["type"] == "gone"

    def _events(self, message: Mapping[str, Any]) -> list[RuntimeEvent]:
        event = self._event(message)
        if not isinstance(event, TrialStarted):
            return [event]
        earlier = [{"id": event.trial_id, "step": s, "metrics": m, "type": "step"} for s, m in self._before.items()]
        return [event, *(self._event(step) for step in earlier)]

    def _event(self, message: Mapping[str, Any]) -> RuntimeEvent:
        kind = message["type"]
        if kind == "ready":
            return RuntimeReady(float(message["startup_seconds"]))
        if kind == "started":
            self._open_metrics(message["id"])
            seconds, warm = float(message["reset_seconds"]), bool(message["warm"])
            return TrialStarted(message["id"], seconds, warm, message.get("machine", ""))
        if kind == "step":
            self._write_metrics(message)
            return Stepped(message["id"], int(message["step"]), message["metrics"])
        if kind == "ended":
            self._idle = bool(message["reusable"]) and self._command is not None
            self._close_metrics()
            return TrialEnded(
                message["id"], int(message["last_step"]), message["error"], message["stopped_by"], message["reusable"]
            )
        if kind == "gone":
            self._gone = True
            return RuntimeGone(message["exit_code"], message["reason"])
        raise EngineError(f"the process sent a message of type {kind!r}; known: ready, started, step, ended, gone")

    def _open_metrics(self, trial_id: str) -> None:
        self._close_metrics()
        folder = self._folders.get(trial_id)
        if folder is not None:
            self._metrics = (folder / METRICS_FILE).open("w", encoding="utf-8")

    def _write_metrics(self, message: Mapping[str, Any]) -> None:
        if self._metrics is not None:
            line = {"version": 1, "step": message["step"], "data": message["metrics"]}
            self._metrics.write(json.dumps(line) + "\n")
            self._metrics.flush()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def _copy_log(self) -> None:
        self._copied_at = self._clock()
        while part := self._host.read_log(self._copied):
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as file:
                file.write(part)
            self._copied += len(part)


def free_name(folder: Path, stem: str, suffix: str) -> Path:
    """The first of stem, stem-2, stem-3 ... that the folder does not have."""
    number = 1
    while (path := folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")).exists():
        number += 1
    return path
