"""How much runs of one configuration differ by their seed alone: the baseline of MODEL on real verl, SEEDS seeds.

    python benchmarks/bench_seed_spread.py                     8 seeds of 60 steps of the tiny model, on the CPU
    SEEDS=4 STEPS=20 WARMUP=3 NAME=defaults MODEL=smollm2-135m python benchmarks/bench_seed_spread.py 'verl=[...]'

One campaign with one stage, whose rule (`every_seed`, by import path) asks for the baseline on every seed; verl stays
loaded in between. Arguments are further settings of `python -m sweep`. Prints and writes `results/seed_spread.json`
(with a NAME, of campaign NAME, `results/seed_spread_NAME.json`): the coefficient of variation between seeds, with its
95 % interval, of the fitted gain (dR of S0), the area above the common start, the step time T, and both over T.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sweep.core.curve import Curve  # noqa: E402
from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait  # noqa: E402
from sweep.core.overrides import NOTHING  # noqa: E402
from sweep.core.progress import Progress  # noqa: E402
from sweep.core.stage import Stage  # noqa: E402
from sweep.core.winner import Choice  # noqa: E402
from sweep.stages.arms import Arm, Measured, measure  # noqa: E402
from sweep.stats.gain import area_gain, common_start, fitted_gain  # noqa: E402
from sweep.stats.timing import step_time  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


def every_seed(stage: Stage, progress: Progress) -> Decision:
    """The baseline on every seed that there is."""
    found = measure(stage, progress, Arm(NOTHING, NOTHING, "baseline"), len(progress.seeds))
    if isinstance(found, Launch | Wait):
        return found
    if not isinstance(found, Measured) or len(found.finished) < 2:
        return Halt("fewer than two seeds finished")
    return Freeze(Choice(NOTHING, NOTHING, found.score, found.score, found.trial_ids, "baseline on every seed"))


def main() -> None:
    """Run the seeds, measure their spread, write and print it."""
    model, seeds, steps = os.environ.get("MODEL", "tiny"), os.environ.get("SEEDS", "8"), os.environ.get("STEPS", "60")
    warmup, name = int(os.environ.get("WARMUP", "5")), os.environ.get("NAME")
    campaign = name or f"seed-spread-{model}-{steps}"
    asked = [
        f"model={model}",
        f"campaign={campaign}",
        "stage=minibatch",
        "stages.minibatch.rule=benchmarks.bench_seed_spread:every_seed",
        f"stages.minibatch.budget.seeds={seeds}",
        f"budget.seeds={seeds}",
        f"budget.steps={steps}",
        f"budget.warmup_steps={warmup}",
        "confirm.seeds=0",
        *sys.argv[1:],
    ]
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))}
    subprocess.run([sys.executable, "-m", "sweep", *asked], cwd=ROOT, env=environment, check=True)
    result = {
        "model": model,
        "steps": int(steps),
        "seconds": round(time.monotonic() - started),
        **spreads(curves(asked), warmup),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / (f"seed_spread_{name}.json" if name else "seed_spread.json")
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


def curves(asked: list[str]) -> list[Curve]:
    """The finished curves of the campaign, in the order of their seeds."""
    from sweep.adapters.optuna_store import OptunaStore
    from sweep.config import compose, to_plan

    plan = to_plan(compose(asked))
    store = OptunaStore.open(plan.storage_url, plan.name, driver=False)
    try:
        records = sorted(store.records(plan.stage("minibatch")), key=lambda r: r.trial.seed)
        return [r.finished.curve for r in records if r.finished is not None]
    finally:
        store.close()


def spreads(found: list[Curve], warmup: int) -> dict[str, Any]:
    """The coefficient of variation between the curves of each measure; `warmup` steps are left out of every time."""
    start = common_start(c.score for c in found)
    gain = [fitted_gain(c.score).value for c in found]
    area = [area_gain(c.score, start).value for c in found]
    seconds = [step_time(c.step_seconds, warmup).value for c in found]
    measures = {
        "gain": gain,
        "area": area,
        "step_seconds": seconds,
        "gain_per_second": [g / t for g, t in zip(gain, seconds, strict=True)],
        "area_per_second": [a / t for a, t in zip(area, seconds, strict=True)],
    }
    return {"seeds": len(found), **{name: spread(values) for name, values in measures.items()}}


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, and coefficient of variation with the 95 % interval of a normal sample's standard deviation."""
    mean, deviation, degrees = float(np.mean(values)), float(np.std(values, ddof=1)), len(values) - 1
    low, high = (deviation * math.sqrt(degrees / chi2.ppf(p, degrees)) / abs(mean) for p in (0.975, 0.025))
    rounded = [round(v, 5) for v in values]
    return {
        "mean": round(mean, 5),
        "cv": round(deviation / abs(mean), 4),
        "cv_95": [round(low, 4), round(high, 4)],
        "values": rounded,
    }


if __name__ == "__main__":
    main()
