"""What a campaign on GPUs gained, by its confirmation on fresh seeds: one JSON object, the table of the results.

    python -m benchmarks.confirmed runs/NAME [summary.json]

Winner and base ran on the same new seeds. `reward_per_gpu_second_ratio` with `ratio_low` and `ratio_high` is the ratio
of reward gained a second as the campaign froze it (both arms have the same GPUs); `throughput_gain` and
`gen_time_change` are means over the seeds of the change of the median step, with 95 % intervals by Student's t;
`base_cv` is the spread between seeds of the base's area a second, over all its runs of the campaign.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from benchmarks.stored_trials import finished_trials
from sweep.core.curve import Curve
from sweep.core.overrides import NOTHING
from sweep.core.progress import Record
from sweep.errors import ConfigError
from sweep.stats.gain import area_gain, common_start
from sweep.stats.timing import step_time

CONFIRM = "confirm"


def main() -> None:
    """Print the summary, and write it where asked."""
    found = summary(Path(sys.argv[1]), warmup=3)
    text = json.dumps(found, indent=1)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text + "\n", encoding="utf-8")
    print(text)


def summary(folder: Path, warmup: int) -> dict[str, Any]:
    """The campaign's figures; `warmup` steps are left out of every time.

    Raises:
        ConfigError: if the campaign has no frozen confirmation.
    """
    frozen = folder / "frozen" / f"{CONFIRM}.yaml"
    if not frozen.exists():
        raise ConfigError(f"{folder} has no frozen confirmation; the same command again goes on with the campaign")
    by_stage = _records(folder)
    confirmed = by_stage[CONFIRM]
    base = {r.trial.seed: r.outcome.curve for r in confirmed if r.settings == NOTHING}
    own = {r.trial.seed: r.outcome.curve for r in confirmed if r.note == "winner"}
    seeds = sorted(base.keys() & own.keys())
    pairs = [(own[s], base[s]) for s in seeds]
    start = common_start(c.score for c in [*base.values(), *own.values()])
    everywhere = [r.outcome.curve for rs in by_stage.values() for r in rs if _is_base(r, confirmed)]
    rates = [area_gain(c.score, start).value / step_time(c.step_seconds, warmup).value for c in everywhere]
    trials = {r.trial.id for records in by_stage.values() for r in records}
    return {
        **_ratio(frozen),
        **_change("throughput_gain", pairs, warmup, lambda c: c.tokens_per_s_per_gpu),
        **_change("gen_time_change", pairs, warmup, lambda c: c.gen_seconds),
        **_change("step_time_change", pairs, warmup, lambda c: c.step_seconds),
        "base_cv": round(statistics.stdev(rates) / statistics.fmean(rates), 4) if len(rates) > 1 else None,
        "base_runs": len(rates),
        "seeds": seeds,
        "trials": len(trials),
        "steps": confirmed[0].trial.steps,
    }


def _records(folder: Path) -> dict[str, list[Any]]:
    """Stage to its finished trials."""
    found: dict[str, list[Any]] = {}
    for stage, record, _ in finished_trials(folder):
        found.setdefault(stage, []).append(record)
    return found


def _is_base(record: Record, confirmed: Sequence[Record]) -> bool:
    """Whether the trial is the campaign's own base, not that of a later stage."""
    base = next(r.trial.overrides for r in confirmed if r.settings == NOTHING)
    return record.trial.overrides == base and record.trial.steps == confirmed[0].trial.steps


def _ratio(frozen: Path) -> dict[str, float]:
    import yaml

    ratio = yaml.safe_load(frozen.read_text(encoding="utf-8"))["ratio"]
    return {
        "reward_per_gpu_second_ratio": ratio["value"],
        "ratio_low": ratio["low"],
        "ratio_high": ratio["high"],
    }


def _change(
    name: str, pairs: Sequence[tuple[Curve, Curve]], warmup: int, series: Callable[[Curve], Sequence[float]]
) -> dict[str, float | None]:
    """Mean relative change of the series' median with its 95 % interval; no interval for a single seed."""
    logs = [math.log(_median(series(own), warmup) / _median(series(base), warmup)) for own, base in pairs]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return {name: round(math.expm1(mean), 4), f"{name}_low": None, f"{name}_high": None}
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    parts = {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return {part: round(math.expm1(value), 4) for part, value in parts.items()}


def _median(values: Sequence[float], warmup: int) -> float:
    return statistics.median(v for v in values[warmup:] if math.isfinite(v))


if __name__ == "__main__":
    main()
