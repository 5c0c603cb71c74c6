"""What a campaign on GPUs gained on fresh seeds: one JSON object, the table of the results.

    python -m benchmarks.confirmed runs/NAME [--against runs/OTHER ...] [--out summary.json]

The winner's trials are those of the campaign's stage `confirm`, which its base ran beside on the same seeds; a campaign
given by --against (verl's defaults, published settings; `bench_seed_spread.py` runs one on several seeds) lends all its
trials. Each comparison has the ratio of reward gained a second (every arm has the same GPUs) by the area above the
common start and by the fitted gain, and the changes of throughput, generation and step time, with 95 % intervals;
their spread is pooled over all arms. The first of --against gives the figures at the top, the base where there is none.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from benchmarks.stored_trials import finished_trials
from sweep.core.curve import Curve
from sweep.core.overrides import NOTHING
from sweep.errors import ConfigError
from sweep.stats.efficiency import efficiency, pooled_variance

CONFIRM = "confirm"
WARMUP_STEPS = 3
SERIES: dict[str, Callable[[Curve], Sequence[float]]] = {
    "throughput_gain": lambda c: c.tokens_per_s_per_gpu,
    "gen_time_change": lambda c: c.gen_seconds,
    "step_time_change": lambda c: c.step_seconds,
}
"""Figure to the series whose median over the steps it compares."""


def main() -> None:
    """Print the summary, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("--against", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = json.dumps(summary(asked.campaign, asked.against), indent=1)
    if asked.out is not None:
        asked.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def summary(folder: Path, against: Sequence[Path] = ()) -> dict[str, Any]:
    """The campaign's figures.

    Raises:
        ConfigError: if the confirmation has no finished trial of the winner, or an arm has none at all.
    """
    found = list(finished_trials(folder))
    confirmed = [(record, outcome.curve) for stage, record, outcome in found if stage == CONFIRM]
    own = {record.trial.seed: curve for record, curve in confirmed if record.note == "winner"}
    if not own:
        raise ConfigError(f"{folder} has no trial of its winner on a new seed yet; the same command goes on with it")
    base = {record.trial.seed: curve for record, curve in confirmed if record.settings == NOTHING}
    arms = {path.name: {r.trial.seed: o.curve for _, r, o in finished_trials(path)} for path in against}
    arms["base"] = base
    for name, curves in arms.items():
        if not curves and name != "base":
            raise ConfigError(f"{name} has no finished trial to compare with")
    compared = {name: compare(own, curves, [own, *arms.values()]) for name, curves in arms.items() if curves}
    first = next(iter(compared))
    return {
        **compared[first],
        "against": first,
        "others": {name: figures for name, figures in compared.items() if name != first},
        "winner_seeds": sorted(own),
        "trials": len({record.trial.id for _, record, _ in found}),
        "steps": confirmed[0][0].trial.steps,
    }


def compare(own: dict[int, Curve], other: dict[int, Curve], arms: Sequence[dict[int, Curve]]) -> dict[str, Any]:
    """Winner over the other arm; paired by seed where both ran the same ones, else in the order of their seeds."""
    shared = sorted(own.keys() & other.keys())
    seeds = (shared, shared) if shared else (sorted(own), sorted(other))
    ours, theirs = [own[s] for s in seeds[0]], [other[s] for s in seeds[1]]
    every = [[curves[s] for s in sorted(curves)] for curves in arms]
    figures: dict[str, Any] = {}
    for gain, name in (("area", "reward_per_gpu_second_ratio"), ("fitted", "fitted_gain_per_gpu_second_ratio")):
        spread = pooled_variance(every, warmup_steps=WARMUP_STEPS, gain=gain)
        seen = efficiency(ours, theirs, warmup_steps=WARMUP_STEPS, gain=gain, pooled_variance=spread)
        low, high = ("ratio_low", "ratio_high") if gain == "area" else (f"{name}_low", f"{name}_high")
        figures |= {name: _rounded(seen.value), low: _rounded(seen.low), high: _rounded(seen.high)}
    for name, series in SERIES.items():
        figures |= change(name, [_median(series(c)) for c in ours], [_median(series(c)) for c in theirs])
    return {**figures, "seeds": [list(s) for s in seeds], "paired_by_seed": bool(shared)}


def change(name: str, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | None]:
    """Relative change of the geometric means with its 95 % interval by Welch; none where an arm has one run."""
    logs = [[math.log(v) for v in values] for values in (ours, theirs)]
    mean = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    if min(len(side) for side in logs) < 2:
        return {name: _rounded(math.expm1(mean)), f"{name}_low": None, f"{name}_high": None}
    errors = [statistics.variance(side) / len(side) for side in logs]
    total = sum(errors)
    if total == 0:
        half = 0.0
    else:
        degrees = total**2 / sum(e**2 / (len(side) - 1) for e, side in zip(errors, logs, strict=True))
        half = float(student.ppf(0.975, degrees)) * math.sqrt(total)
    parts = {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return {part: _rounded(math.expm1(value)) for part, value in parts.items()}


def _rounded(value: float) -> float:
    return round(value, 4)


def _median(values: Sequence[float]) -> float:
    return statistics.median(v for v in values[WARMUP_STEPS:] if math.isfinite(v))


if __name__ == "__main__":
    main()
