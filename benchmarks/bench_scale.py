"""What a trial costs as a campaign grows, and how long slots stand idle: `make bench-scale`.

(a) Seconds and memory of a no-op trial from the decision that asks for it to its stored end, around the 10th, 100th,
    1,000th and 10,000th trial of one stage: rule, Optuna's TPE, SQLite, fleet, loop; nothing trains.
(b) The share of time that 2 and 8 slots wait between trials of `TRIAL_SECONDS`, which really pass.
The last line is one JSON object with `ratio_10000_to_10` and `idle_share`. `TRIALS=1000` makes (a) shorter.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean, median

import psutil

from sweep.adapters.optuna_store import OptunaStore
from sweep.campaign import Campaign
from sweep.config import compose, to_plan
from sweep.core.failure import Cause, FailureClass
from sweep.core.overrides import Overrides
from sweep.core.plan import CampaignPlan
from sweep.core.stage import Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.fleet import Fleet
from sweep.ports import Runtime, RuntimeEvent, RuntimeReady, Stepped, TrialEnded, TrialStarted

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale"
TRIALS = int(os.environ.get("TRIALS", "10000"))
MARKS = tuple(n for n in (10, 100, 1000, 10_000) if n <= TRIALS)
WINDOW = 0.1
"""Trials around a mark that are averaged, as a share of it; at least `LEAST_WINDOW`."""

LEAST_WINDOW = 8
REPEATS_OF_10 = 5
"""The first trials take milliseconds each: their mean over so many fresh campaigns is the base of the ratio."""

SLOTS = (2, 8)
TRIAL_SECONDS = 20.0
"""As long as a warm trial of the tiny model; every other model's are longer, and wait less in proportion."""

ROUNDS = 3
METRICS = {"critic/score/mean": 0.5, "timing_s/step": 1.0, "sweep/rollout_tokens_per_s": 100.0}


@dataclass
class NoopRuntime:
    """Ends each trial after one step, `seconds` after it was handed over; notes when it had one."""

    seconds: float
    name: str = "noop"
    log_path: Path = Path("noop.log")

    def __post_init__(self) -> None:
        self._trial: Trial | None = None
        self._due = 0.0
        self._fresh = True
        self.busy: list[tuple[float, float]] = []

    def serves(self, trial: Trial) -> bool:
        """Every trial."""
        return True

    def submit(self, trial: Trial, folder: Path) -> None:
        """The trial's time begins."""
        self._trial, self._due = trial, time.perf_counter() + self.seconds

    def events(self, wait_seconds: float) -> Sequence[RuntimeEvent]:
        """The whole trial once its time is over."""
        if self._trial is None:
            return ()
        wait = min(wait_seconds, self._due - time.perf_counter())
        if wait > 0:
            time.sleep(wait)
        if time.perf_counter() < self._due:
            return ()
        trial, self._trial = self._trial, None
        self.busy.append((self._due - self.seconds, self._due))
        begun = [RuntimeReady(0.0)] if self._fresh else []
        self._fresh = False
        return [*begun, TrialStarted(trial.id), Stepped(trial.id, 1, METRICS), TrialEnded(trial.id, 1)]

    def stop_trial(self, trial_id: str, reason: str) -> None:
        """Nobody stops a trial here."""

    def log_text(self) -> str:
        """Nothing was printed."""
        return ""

    def close(self) -> None:
        """Nothing is held."""


class NoopEngine:
    """Runtimes in this process that do nothing."""

    def __init__(self, slots: int = 1, seconds: float = 0.0) -> None:
        self.slots, self._seconds = slots, seconds
        self.runtimes: list[NoopRuntime] = []

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: object = None) -> Runtime:
        """A no-op runtime."""
        self.runtimes.append(NoopRuntime(self._seconds))
        return self.runtimes[-1]

    def checkpoint(self, trial: Trial, folder: Path) -> None:
        """Nothing is saved."""

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, Runtime]:
        """Nothing is left."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """Nothing that a result depends on."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


class Meter:
    """An observer that notes time and resident memory at each trial's end."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.resident: list[int] = []
        self._process = psutil.Process()

    def trial_ended(self, *_: object) -> None:
        """Note both."""
        self.seconds.append(time.perf_counter())
        self.resident.append(self._process.memory_info().rss)

    def __getattr__(self, name: str):
        return lambda *_: None

    def milliseconds_at(self, count: int) -> float:
        """Mean time of a trial around the `count`th; the first two, which open files, are left out."""
        half = max(LEAST_WINDOW, int(count * WINDOW)) // 2
        first, last = max(1, count - half), min(len(self.seconds) - 1, count + half)
        return 1000 * (self.seconds[last] - self.seconds[first]) / (last - first)

    def kib_a_trial(self, count: int) -> float:
        """Resident memory added a trial from the 10th to the `count`th, in KiB."""
        return (self.resident[count - 1] - self.resident[9]) / 1024 / max(1, count - 10)


def grow(trials: int) -> Meter:
    """A campaign of one stage with so many no-op trials, in a fresh SQLite file."""
    meter = Meter()
    _campaign(trials, NoopEngine(), meter)
    return meter


def idle_share(slots: int) -> float:
    """Share of the slots' time between their first trial's start and their last one's end that no trial ran."""
    engine = NoopEngine(slots, TRIAL_SECONDS)
    _campaign(slots * ROUNDS, engine, Meter())
    shares = []
    for runtime in engine.runtimes:
        whole = runtime.busy[-1][1] - runtime.busy[0][0]
        shares.append(1 - sum(end - begin for begin, end in runtime.busy) / whole)
    return fmean(shares)


def _campaign(trials: int, engine: NoopEngine, meter: Meter) -> None:
    stage = Stage(
        name="scale",
        knobs=(Knob("algorithm.lam", 0.9, 1.0), Knob("algorithm.kl_ctrl.kl_coef", 1e-4, 1e-1, log=True)),
        rule=SearchRule(),
        objective="rollout_throughput",
        budget=StageBudget(trials=trials, steps=1, warmup_steps=0),
    )
    with tempfile.TemporaryDirectory() as folder:
        model = replace(to_plan(compose(["model=tiny"])).model)
        plan = CampaignPlan(
            name="scale", folder=folder, stages=(stage,), wanted=("scale",), seeds=(1,), model=model,
            base=Overrides.of({"algorithm.lam": 0.95, "algorithm.kl_ctrl.kl_coef": 0.001}), slots=engine.slots,
        )  # fmt: skip
        store = OptunaStore.open(f"sqlite:///{folder}/optuna.db", "scale", seed=1)
        fleet = Fleet(
            engine, folder_of=lambda t: Path(folder) / t.id, classify=lambda log: Cause(FailureClass.UNKNOWN, log)
        )
        try:
            Campaign(plan, store=store, fleet=fleet, observers=[meter]).run()
        finally:
            fleet.close()
            store.close()


def main() -> None:
    """Measure, write, print."""
    grow(20)  # imports and caches
    tens = [grow(20).milliseconds_at(10) for _ in range(REPEATS_OF_10)]
    gc.collect()
    whole = grow(TRIALS + LEAST_WINDOW)
    milliseconds = {mark: whole.milliseconds_at(mark) for mark in MARKS} | {
        10: median([*tens, whole.milliseconds_at(10)])
    }
    memory = {mark: whole.kib_a_trial(mark) for mark in MARKS if mark > 10}
    idle = {slots: idle_share(slots) for slots in SLOTS}
    last = {
        f"ratio_{MARKS[-1]}_to_10": milliseconds[MARKS[-1]] / milliseconds[10],
        "idle_share": max(idle.values()),
    }
    found = {
        "date": date.today().isoformat(), "command": "make bench-scale", "cores": os.cpu_count(),
        "python": platform.python_version(), "milliseconds_a_trial": milliseconds, "kib_a_trial": memory,
        "trial_seconds": TRIAL_SECONDS, "idle_share_by_slots": idle,
    }  # fmt: skip
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "scale.json").write_text(json.dumps(found | last, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    print(json.dumps(last))


if __name__ == "__main__":
    main()
