"""Measures how the tiny task learns under chosen settings: real verl on the CPU, one warm process for all runs.

    python scripts/measure_tiny.py --steps 60 --seeds 1 2 "" "actor_rollout_ref.actor.optim.lr=2e-4"

Each argument is one variant of the preset model=tiny: verl settings separated by `;`, the empty one for the preset
itself. Prints a row a run: the mean score of each sixth of its steps, KL and step time of the last. docs/tiny-task.md
holds the results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
from sweep.config import compose, sources, to_plan
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.engine import VerlEngine
from sweep.engines.verl.environment import cpu_engine
from sweep.errors import EngineError, SweepError
from sweep.ports import RuntimeGone, RuntimeReady, Stepped, TrialEnded
from sweep.stage_files import parse_settings
from sweep.tasks import assets

if TYPE_CHECKING:
    from sweep.engines.hosted_runtime import HostedRuntime

PARTS = 6
COLUMNS = {"score": "critic/score/mean", "kl": "actor/reward_kl_penalty", "seconds": "timing_s/step"}
SILENCE_SECONDS = 600.0


def main() -> int:
    """Runs every variant with every seed; 1 if verl failed."""
    parser = argparse.ArgumentParser(description="learning curves of model=tiny under chosen verl settings")
    parser.add_argument("variants", nargs="+", help="verl settings of a variant, separated by ';'; '' for the preset")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--folder", type=Path, default=Path("runs/measure-tiny"))
    request = parser.parse_args()
    config = compose(["model=tiny"])
    paths = assets.build(sources(config), request.folder / "assets")
    base = to_plan(config).base
    engine = VerlEngine(
        RayLauncher(ClusterSettings.without_gpus(1)),
        cpu_engine(),
        locate=lambda overrides: assets.located(overrides, paths),
    )
    runtime: HostedRuntime | None = None
    try:
        for variant in request.variants:
            changes = Overrides.of(parse_settings([part for part in variant.split(";") if part], variant))
            for seed in request.seeds:
                trial = Trial(base.merged(changes), seed, request.steps)
                runtime = _runtime_for(trial, engine, runtime, request.folder)
                runtime.submit(trial, request.folder / trial.id)
                print(_row(variant or "preset", seed, _until(runtime, TrialEnded)), flush=True)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        engine.close()
    return 0


def _runtime_for(trial: Trial, engine: VerlEngine, running: HostedRuntime | None, folder: Path) -> HostedRuntime:
    """The running process if it can serve the trial, else a new one that is ready."""
    if running is not None and running.serves(trial):
        return running
    if running is not None:
        running.close()
    started = engine.start(trial, folder / "runtime")
    _until(started, RuntimeReady)
    return started


def _until(runtime: HostedRuntime, kind: type) -> list[Stepped]:
    """The steps that were logged before the first event of that kind."""
    steps: list[Stepped] = []
    while events := runtime.events(SILENCE_SECONDS):
        steps += [event for event in events if isinstance(event, Stepped)]
        if any(isinstance(event, RuntimeGone) for event in events):
            raise EngineError(f"verl is gone; its console is in {runtime.log_path}")
        failed = [event for event in events if isinstance(event, TrialEnded) and event.error]
        if failed:
            raise EngineError(f"the trial failed at step {failed[0].last_step}: {failed[0].error}")
        if any(isinstance(event, kind) for event in events):
            return steps
    raise EngineError(f"verl was silent for {SILENCE_SECONDS:g} s; its console is in {runtime.log_path}")


def _row(name: str, seed: int, steps: list[Stepped]) -> str:
    series = {column: [step.metrics[key] for step in steps if key in step.metrics] for column, key in COLUMNS.items()}
    size = max(1, len(steps) // PARTS)
    scores = " ".join(f"{fmean(series['score'][i : i + size]):.3f}" for i in range(0, size * PARTS, size))
    kl, seconds = fmean(series["kl"][-size:]), median(series["seconds"][-size:])
    return f"{name:60s} seed {seed}  score {scores}  kl {kl:.3f}  step {seconds:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
