"""The benchmark of the probe: trials read from a campaign's folder or a file, points measured once, one JSON line."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.token_budget_trials import read_trials

from sweep.adapters.optuna_store import OptunaStore
from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Knob, Ladder, LadderRule, Rung, Stage, StageBudget
from sweep.core.trial import Measure, Trial
from sweep.engines.vllm.probe import ProbePoint
from sweep.errors import ConfigError
from tests.engines.vllm.conftest import fake_vllm, model

__all__ = ["fake_vllm", "model"]

STAGE = Stage(
    "token_budget",
    (Knob(keys.MAX_BATCHED_TOKENS, 1, 1e6), Knob(keys.MAX_SEQS, 1, 1e5)),
    LadderRule((Ladder("l", (Rung("r", Overrides.of({keys.MAX_BATCHED_TOKENS: 1})),)),)),
    objective="rollout_throughput",
    budget=StageBudget(trials=9, steps=8),
)
BASE = Overrides.of({keys.TRAIN_BATCH: 4, keys.MEMORY_UTILIZATION: 0.4, keys.MAX_SEQS: 8})


def campaign(folder: Path, rates: dict[int, float], measure: Measure = Measure.TRAINING) -> Path:
    """A campaign's folder whose trials of the stage had these rates by token budget, slower while warming up."""
    folder.mkdir(parents=True)
    store = OptunaStore.open(f"sqlite:///{folder / 'optuna.db'}", folder.name)
    for budget, rate in rates.items():
        settings = Overrides.of({keys.MAX_BATCHED_TOKENS: budget})
        trial = Trial(BASE.merged(settings), seed=1, steps=8, measure=measure)
        store.intend(STAGE, Proposal(settings, 1), trial)
        rows = [
            (
                step,
                {
                    "sweep/rollout_tokens_per_s": rate if step > 5 else 1.0,
                    "response_length/mean": 25.0,
                    "timing_s/step": 2.0,
                },
            )
            for step in range(1, 9)
        ]
        store.settle(STAGE, trial, Finished(Curve.from_rows(rows), 16.0), None)
    store.close()
    return folder


def bench(*arguments: str) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "benchmarks.bench_token_budget", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_trials_come_from_a_campaigns_folder_without_their_warm_up(tmp_path: Path) -> None:
    ((point, rate, facts, seconds),) = read_trials(campaign(tmp_path / "c", {20: 900.0}), 0.4)
    assert (point, rate, seconds) == (ProbePoint(20, 8, 0.4), 900.0, 16.0)
    assert facts == {"prompts": 4, "samples": 1, "response_tokens": 25}


def test_a_campaign_without_such_trials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished trial of stage token_budget"):
        read_trials(campaign(tmp_path / "c", {}), 0.4)


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[{"max_num_seqs": 1}]')
    with pytest.raises(ConfigError, match="cannot read trials from"):
        read_trials(tmp_path / "x.json", 0.4)


def test_the_last_line_compares_the_probe_with_the_trials_and_points_are_measured_once(
    fake_vllm: Path, model: Path, tmp_path: Path
) -> None:
    folder = campaign(tmp_path / "c", {20: 900.0, 80: 500.0, 40: 800.0, 101: 1000.0})
    arguments = [f"model={model}", "--cpu", "--campaign", str(folder), "--rounds", "2", "--prompt-tokens", "4"]
    code, found = bench(*arguments, "--out", str(tmp_path / "probe.jsonl"))
    assert code == 0
    assert found["workload"] == {"prompts": 4, "prompt_tokens": 4, "response_tokens": 25, "samples": 1, "spread": 0.0}
    assert (found["compared"], found["left"]) == (3, 0)  # 101 ran out of memory
    assert (found["spearman"], found["probe_best"], found["trial_best"]) == (-1.0, "80/8/0.4", "20/8/0.4")
    assert found["lost_share"] == pytest.approx(4 / 9)
    points = found["points"]
    assert isinstance(points, list)
    assert [p.get("failure") for p in points] == [None, None, None, "OOM_GPU"]
    again = bench(*arguments, "--out", str(tmp_path / "probe.jsonl"))[1]
    assert again == found
    assert len((tmp_path / "probe.jsonl").read_text().splitlines()) == 4


def test_two_campaigns_of_the_stage_are_compared_without_a_gpu(tmp_path: Path) -> None:
    full = campaign(tmp_path / "full", {20: 900.0, 40: 800.0, 80: 500.0})
    probed = campaign(tmp_path / "probed", {20: 90.0, 40: 95.0, 80: 50.0, 160: 10.0}, Measure.ROLLOUT)
    code, found = bench("model=M", "--campaign", str(full), "--probed", str(probed))
    assert code == 0 and found["compared"] == 3
    assert (found["probe_best"], found["trial_best"]) == ("40/8/0.4", "20/8/0.4")
    assert found["lost_share"] == pytest.approx(1 / 9) and found["spearman"] == pytest.approx(0.5)
    assert (found["probe_seconds"], found["trial_seconds"]) == (64.0, 48.0)
    code, found = bench("model=M", "--campaign", str(probed), "--probed", str(full))
    assert code == 2 and "measured by rollout" in str(found["error"])


def test_without_vllm_the_last_line_says_so(model: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vllm is installed here")
    code, found = bench(f"model={model}", "--out", str(tmp_path / "probe.jsonl"))
    assert code == 2 and "vllm is not installed" in str(found["error"])
