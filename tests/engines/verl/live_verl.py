"""`LiveVerl`: a real verl behind its mailbox, message by message; on the CPU unless told otherwise."""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.adapters.ray_launcher import RayLauncher
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.commands import file_logger
from sweep.engines.verl.environment import cpu_engine
from sweep.engines.verl.settings import EngineSettings, complete, launch_arguments
from tests.engines.verl.digits_reward import SWITCH

REPOSITORY = Path(__file__).resolve().parents[3]
START_SECONDS = 400.0
TRIAL_SECONDS = 240.0
MEASURED = re.compile(r"timing|perf/|tokens_per_s|rollout_(iterations|most)")
"""Metrics that tell how fast something was, not what it did."""
_numbers = itertools.count()


@dataclass
class Told:
    """What was told of one trial."""

    messages: list[Mapping[str, Any]] = field(default_factory=list)

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [m for m in self.messages if m["type"] == kind]

    def one(self, kind: str) -> Mapping[str, Any]:
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} messages of type {kind}: {[m['type'] for m in self.messages]}"
        return found[0]

    @property
    def steps(self) -> list[dict[str, float]]:
        """What each step did, by metric."""
        return [{k: v for k, v in m["metrics"].items() if not MEASURED.search(k)} for m in self.of("step")]

    def column(self, metric: str) -> list[float]:
        return [m["metrics"][metric] for m in self.of("step")]


class LiveVerl:
    """Started at once; `ready` waits for it."""

    def __init__(
        self,
        launcher: RayLauncher,
        folder: Path,
        settings: Mapping[str, object],
        *,
        reuse: bool,
        seed: int,
        steps: int,
        engine: EngineSettings | None = None,
        over: Mapping[str, object] | None = None,
    ) -> None:
        """`over` wins even over what makes a run this trial, here and in `submit`."""
        self._folder = folder
        self.no_reward = folder / "no_reward"  # while it exists, every reward is 0
        self._seen = 0
        self._trainer = "sweep" if engine else "sweep_probed"
        name = f"test-{uuid.uuid4().hex[:8]}"
        engine = engine or cpu_engine()
        modules = engine.variables["VERL_USE_EXTERNAL_MODULES"] + ",tests.engines.verl.probe_loading"
        paths = engine.variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        self._variables = {
            **engine.variables,
            "VERL_USE_EXTERNAL_MODULES": modules,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), paths])),
            "SWEEP_MAILBOX": name,
            "HF_HUB_OFFLINE": "1",
            **({} if reuse else file_logger(folder)),
            SWITCH: str(self.no_reward),
        }
        self._engine = engine
        self._reuse = reuse
        arguments = launch_arguments(self._overrides(settings, seed, steps, over or {}), self._variables)
        self._host = launcher.launch(name, arguments, self._variables)
        self._pending: list[Mapping[str, Any]] = []

    def _overrides(
        self, settings: Mapping[str, object], seed: int, steps: int, over: Mapping[str, object]
    ) -> Overrides:
        trial = Trial(Overrides.of(settings), seed, steps)
        wanted = complete(trial, str(self._folder), self._engine, self._reuse)
        mode = {"trainer.v1.trainer_mode": self._trainer, "trainer.experiment_name": "x"}
        return wanted.merged({**mode, **over})

    def ready(self) -> Mapping[str, Any]:
        return self._until("ready", START_SECONDS)[-1]

    def submit(
        self,
        settings: Mapping[str, object],
        *,
        seed: int,
        steps: int,
        leave_out: Sequence[str] = (),
        over: Mapping[str, object] | None = None,
    ) -> str:
        """Queue a trial; its id."""
        from sweep.engines.verl.settings import worker_variables

        trial_id = f"t{next(_numbers)}"
        lines = [*self._overrides(settings, seed, steps, over or {}).command_line(), *worker_variables(self._variables)]
        env = {"VERL_FILE_LOGGER_PATH": str(self._folder / trial_id / "verl.jsonl")}
        command = {"type": "trial", "id": trial_id, "overrides": lines, "steps": steps, "env": env}
        self._host.send({**command, "folder": str(self._folder / trial_id), "leave_out": list(leave_out)})
        return trial_id

    def stop(self, trial_id: str, reason: str) -> None:
        self._host.request_stop(trial_id, reason)

    def result(self) -> Told:
        """Everything told until the current trial ended."""
        return Told(self._until("ended", TRIAL_SECONDS))

    def run(self, settings: Mapping[str, object], **options: Any) -> Told:
        """A whole trial."""
        self.submit(settings, **options)
        return self.result()

    def close(self) -> None:
        self._host.close()

    def gone(self) -> Mapping[str, Any]:
        return self._until("gone", 60.0)[-1]

    def _until(self, kind: str, seconds: float) -> list[Mapping[str, Any]]:
        end, found = time.monotonic() + seconds, []
        while time.monotonic() < end:
            if not self._pending:
                self._pending = list(self._host.receive(self._seen, 2.0))
            while self._pending:
                message = self._pending.pop(0)
                self._seen = message["number"]
                found.append(message)
                if message["type"] == kind:
                    return found
                assert message["type"] != "gone", f"verl is gone: {message}\n{self.console()}"
        raise AssertionError(f"no {kind} in {seconds:g} s; got {[m['type'] for m in found]}\n{self.console()}")

    def console(self) -> str:
        """The last of what verl printed."""
        text, offset = b"", 0
        while part := self._host.read_log(offset):
            text, offset = (text + part)[-8000:], offset + len(part)
        return text.decode(errors="replace")


def differing(one: Told, other: Told) -> dict[str, tuple[int, float, float]]:
    """Metric to (step, value, value) where the two first differ; NaN equals NaN."""
    found: dict[str, tuple[int, float, float]] = {}
    for number, (left, right) in enumerate(zip(one.steps, other.steps, strict=False), start=1):
        assert left.keys() == right.keys(), left.keys() ^ right.keys()
        for metric in left:
            mine, yours = left[metric], right[metric]
            if mine != yours and not (mine != mine and yours != yours):
                found.setdefault(metric, (number, mine, yours))
    return found
