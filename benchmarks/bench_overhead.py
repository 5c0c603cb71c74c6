"""What orchestration costs: `make bench-overhead`. Everything is measured side by side in one run on one machine.

(a) no-op trials: seconds a trial of ours (Optuna store in SQLite, Ray, a warm runtime), of Ray Tune with OptunaSearch,
    and of Hydra's Optuna sweeper with its Ray launcher where it installs; (b) the same real verl trials on the CPU,
    cold and warm: from handing a trial over to the end of its first step; (c) `python -m sweep` over four stages,
    cold and warm. `PARTS=a`, `PARTS=ab` leave the rest out. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from statistics import median

from sweep.campaign import Campaign
from sweep.config import compose, to_plan
from sweep.core.failure import Cause, FailureClass
from sweep.core.overrides import Overrides
from sweep.core.plan import CampaignPlan
from sweep.core.stage import Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.fleet import Ended, Fleet, Started, Stepped

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "overhead"
NOOP_TRIALS = int(os.environ.get("NOOP_TRIALS", "60"))
REPEATS = int(os.environ.get("REPEATS", "3"))
REAL_TRIALS = int(os.environ.get("REAL_TRIALS", "4"))
REAL_STEPS = 5
TUNE = ["model=tiny"]


def noop_stage() -> Stage:
    """One knob, Optuna's TPE, as many trials as asked for."""
    return Stage(
        name="noop",
        knobs=(Knob("algorithm.lam", 0.9, 1.0),),
        rule=SearchRule(),
        objective="rollout_throughput",
        budget=StageBudget(trials=NOOP_TRIALS, steps=1, warmup_steps=0),
    )


class NoopEngine:
    """The engine's real host, mailbox and runtime around a process that does not train."""

    slots = 1

    def __init__(self) -> None:
        from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher

        self._launcher = RayLauncher(ClusterSettings.without_gpus(1))
        self._runtimes = []

    def checkpoint(self, trial: Trial, folder: Path) -> None:
        """A trial that does nothing saves nothing."""

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, object]:
        """Nothing outlives this process."""
        return {}

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: object = None):
        """A no-op process in place of verl."""
        from sweep.engines.hosted_runtime import HostedRuntime
        from sweep.engines.verl.commands import trial_command

        folder.mkdir(parents=True, exist_ok=True)
        name = f"noop-{len(self._runtimes)}"
        script = str(ROOT / "benchmarks" / "noop_trainer.py")
        host = self._launcher.launch(name, [script], {"SWEEP_MAILBOX": name})
        runtime = HostedRuntime(
            host,
            trial,
            folder / "runtime.log",
            command=lambda t, place: trial_command(t, place, t.overrides, ()),
            serves=lambda base, other: True,
        )
        self._runtimes.append(runtime)
        return runtime

    def versions(self) -> Mapping[str, str]:
        """Nothing that a result would depend on."""
        return {}

    def close(self) -> None:
        """End process and cluster."""
        for runtime in self._runtimes:
            runtime.close()
        self._launcher.close()


class TrialClock:
    """An observer that notes when each trial ended."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def trial_ended(self, *_: object) -> None:
        """Note the time."""
        self.ended.append(time.perf_counter())

    def __getattr__(self, name: str):
        return lambda *_: None

    def seconds_a_trial(self) -> float:
        """Mean over all trials after the first, whose start is start-up and not orchestration."""
        return (self.ended[-1] - self.ended[0]) / (len(self.ended) - 1)


def ours() -> float:
    """Seconds a no-op trial of a campaign of ours."""
    from sweep.adapters.optuna_store import OptunaStore

    with tempfile.TemporaryDirectory() as folder:
        plan = CampaignPlan(
            name="noop", folder=folder, stages=(noop_stage(),), wanted=("noop",),
            base=Overrides.of({"algorithm.lam": 0.95}), model=to_plan(compose(TUNE)).model, seeds=(1,),
        )  # fmt: skip
        store = OptunaStore.open(f"sqlite:///{folder}/optuna.db", "noop", seed=1)
        engine = NoopEngine()
        fleet = Fleet(
            engine, folder_of=lambda t: Path(folder) / t.id, classify=lambda log: Cause(FailureClass.UNKNOWN, log)
        )
        clock = TrialClock()
        try:
            Campaign(plan, store=store, fleet=fleet, observers=[clock]).run()
        finally:
            fleet.close()
            engine.close()
            store.close()
        return clock.seconds_a_trial()


RAY_TUNE = """
import os, sys, time, tempfile, ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch
n = int(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ended = []
class Clock(tune.Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        ended.append(time.perf_counter())
def noop(config):
    tune.report({"score": 0.5})
search = OptunaSearch(metric="score", mode="max")
tuner = tune.Tuner(noop, param_space={"lam": tune.uniform(0.9, 1.0)},
    tune_config=tune.TuneConfig(search_alg=search, num_samples=n, max_concurrent_trials=1),
    run_config=tune.RunConfig(callbacks=[Clock()], verbose=0, storage_path=tempfile.mkdtemp()))
tuner.fit()
print("SECONDS", (ended[-1] - ended[0]) / (len(ended) - 1))
"""

HYDRA = """
import hydra, time
@hydra.main(config_path=None, config_name="c", version_base=None)
def main(cfg):
    return 0.5
from hydra.core.config_store import ConfigStore
ConfigStore.instance().store("c", {"lam": 0.95})
if __name__ == "__main__":
    main()
"""


def _peer(script: str, *arguments: str) -> float:
    """The seconds a trial that a peer's script prints, run as its users run it: in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=1200,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_AIR_NEW_OUTPUT": "0"},
    )  # fmt: skip
    line = next((text for text in done.stdout.splitlines() if text.startswith("SECONDS")), None)
    if line is None:
        raise RuntimeError(f"the peer printed no time: {done.stderr[-2000:]}")
    return float(line.split()[1])


def hydra_seconds() -> float | str:
    """Seconds a no-op trial of Hydra's Optuna sweeper with its Ray launcher, or why it does not run.

    Its plug-ins need an Optuna older than ours, so they get an environment of their own, kept in `benchmarks/.hydra`.
    """
    home = ROOT / "benchmarks" / ".hydra"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        packages = ["hydra-core==1.3.8", "hydra-optuna-sweeper==1.3.0", "hydra-ray-launcher==1.2.2", "setuptools<81"]
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], capture_output=True, text=True)
        if done.returncode:
            return f"does not install: {done.stderr.strip().splitlines()[-1]}"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "app.py"
        script.write_text(HYDRA)
        sizes, times = (2, NOOP_TRIALS), []
        for size in sizes:
            begin = time.perf_counter()
            arguments = ["-m", "hydra/sweeper=optuna", "hydra/launcher=ray", f"hydra.sweeper.n_trials={size}"]
            done = subprocess.run(
                [str(python), str(script), *arguments, "hydra.sweeper.n_jobs=1", "lam=interval(0.9,1.0)"],
                cwd=folder, capture_output=True, text=True, timeout=1200,
                env={**os.environ, "RAY_AUTH_MODE": "disabled"},
            )  # fmt: skip
            if done.returncode:
                return f"does not run: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no message'}"
            times.append(time.perf_counter() - begin)
        return (times[1] - times[0]) / (sizes[1] - sizes[0])


def real_starts(reuse: bool) -> list[float]:
    """Seconds from handing a verl trial over to the end of its first step; a warm runtime's first is left out."""
    from sweep import wiring
    from sweep.config import sources
    from sweep.tasks import assets

    with tempfile.TemporaryDirectory() as folder:
        config = compose([*TUNE, f"runs={folder}"])
        plan = to_plan(config)
        paths = assets.build(sources(config), Path(folder) / "assets")
        engine = wiring.start_engine(plan, paths)
        fleet = Fleet(
            engine, folder_of=lambda t: Path(folder) / t.id, reuse=reuse, timeouts=plan.timeouts,
            classify=lambda log: Cause(FailureClass.UNKNOWN, log[-500:]),
        )  # fmt: skip
        starts: list[float] = []
        try:
            for seed in range(REAL_TRIALS + reuse):
                starts.append(_first_step(fleet, Trial(plan.base, seed + 1, REAL_STEPS)))
        finally:
            fleet.close()
            engine.close()
        return starts[1:] if reuse else starts


def _first_step(fleet: Fleet, trial: Trial) -> float:
    begin, first = time.perf_counter(), 0.0
    fleet.submit(trial)
    while True:
        for event in fleet.wait(1.0):
            if isinstance(event, Stepped) and event.step == 1 and not first:
                first = time.perf_counter() - begin
            elif isinstance(event, Ended):
                if not first:
                    raise RuntimeError(f"the trial logged no step: {event.outcome}")
                return first
            elif isinstance(event, Started):
                continue


def tune_seconds(reuse: bool) -> tuple[float, int]:
    """Seconds of a whole campaign of four stages from the command line, and the trials that it ran."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        arguments = [*TUNE, f"runs={folder}", f"runtime.reuse={str(reuse).lower()}"]
        done = subprocess.run([sys.executable, "-m", "sweep", *arguments], capture_output=True, text=True, timeout=7200)
        if done.returncode:
            raise RuntimeError(f"sweep ended with {done.returncode}: {done.stderr[-2000:]}")
        trials = len(list(Path(folder).glob("*/trials/*/metrics.jsonl")))
        return time.perf_counter() - begin, trials


def main() -> None:
    """Measure, write, print."""
    parts = os.environ.get("PARTS", "abc")
    found: dict[str, object] = {
        "date": date.today().isoformat(), "command": "make bench-overhead", "cores": os.cpu_count(),
        "python": platform.python_version(), "noop_trials": NOOP_TRIALS, "repeats": REPEATS,
    }  # fmt: skip
    last: dict[str, object] = {}
    if "a" in parts:
        pairs = [(ours(), _peer(RAY_TUNE, str(NOOP_TRIALS))) for _ in range(REPEATS)]
        found |= {"noop_ours_seconds": [a for a, _ in pairs], "noop_ray_tune_seconds": [b for _, b in pairs]}
        found["noop_hydra_seconds"] = hydra_seconds()
        last["noop_ratio_to_ray_tune"] = median(a / b for a, b in pairs)
    if "b" in parts:
        warm, cold = real_starts(True), real_starts(False)
        found |= {"warm_start_seconds": warm, "cold_start_seconds": cold}
        last["warm_to_cold_start"] = median(warm) / median(cold)
    if "c" in parts:
        (cold_seconds, cold_trials), (warm_seconds, warm_trials) = tune_seconds(False), tune_seconds(True)
        found |= {"tune_trials_cold": cold_trials, "tune_trials_warm": warm_trials}
        last |= {"tune_seconds_cold": cold_seconds, "tune_seconds_warm": warm_seconds}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "overhead.json").write_text(json.dumps(found | last, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    print(json.dumps(last))


if __name__ == "__main__":
    main()
