"""What trials of the stage `token_budget` achieved: `read_trials`, from a campaign's folder or a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from sweep.core import verl_keys as keys
from sweep.core.outcome import Finished
from sweep.core.stage import Rounds
from sweep.core.trial import Measure, Trial
from sweep.engines.vllm.probe import ProbePoint
from sweep.errors import ConfigError

STAGE = "token_budget"
WARMUP_STEPS = {Measure.TRAINING: 5, Measure.ROLLOUT: Rounds().warmup}
VERL_DEFAULTS = {keys.MAX_BATCHED_TOKENS: 8192, keys.MAX_SEQS: 256, keys.MEMORY_UTILIZATION: 0.5}

TrialRate = tuple[ProbePoint, float, Mapping[str, float], float]
"""Point, tokens a second, facts of the workload, and seconds that the trial took after its start."""


def read_trials(source: Path, utilization: float, measure: Measure = Measure.TRAINING) -> list[TrialRate]:
    """The finished trials of a campaign's folder that were measured so, or those of a JSON file.

    Raises:
        ConfigError: there are none.
    """
    found = _trials_of_folder(source, measure) if source.is_dir() else _trials_of_file(source, utilization)
    if not found:
        raise ConfigError(
            f"{source} holds no finished trial of stage {STAGE} measured by {measure.value}; "
            f"run it with stage={STAGE} stages.{STAGE}.measure={measure.value} first"
        )
    return found


def _trials_of_file(source: Path, utilization: float) -> list[TrialRate]:
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        return [
            (
                ProbePoint(**{"gpu_memory_utilization": utilization, **point_fields(one)}),
                one["rollout_tokens_per_s"],
                {},
                0.0,
            )
            for one in content
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"cannot read trials from {source}: {error}; see --help for what it must hold") from error


def _trials_of_folder(folder: Path, measure: Measure) -> list[TrialRate]:
    from benchmarks.stored_trials import finished_trials

    of_stage = ((r.trial, outcome) for stage, r, outcome in finished_trials(folder) if stage == STAGE)
    found = [_rate(trial, outcome) for trial, outcome in of_stage if trial.measure is measure]
    return [one for one in found if math.isfinite(one[1])]


def _rate(trial: Trial, outcome: Finished) -> TrialRate:
    overrides, measured = trial.overrides, outcome.curve.since(WARMUP_STEPS[trial.measure] + 1)
    rates = [v for v in measured.rollout_tokens_per_s if math.isfinite(v)]
    lengths = [v for v in measured.response_tokens if math.isfinite(v)]
    budget, seqs, utilization = (cast(Any, overrides.get(key, value)) for key, value in VERL_DEFAULTS.items())
    point = ProbePoint(budget, seqs, utilization)
    facts: dict[str, Any] = {
        "prompts": overrides.get(keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH]),
        "samples": overrides.get(keys.ROLLOUT_N, 1),
        **({"response_tokens": round(fmean(lengths))} if lengths else {}),
    }
    return point, fmean(rates) if rates else math.nan, facts, outcome.wall_seconds


def point_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")
    return {name: entry[name] for name in names if name in entry}
