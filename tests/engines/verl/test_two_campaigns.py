"""Two campaigns of real verl at once on one machine: neither notices the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.verl, pytest.mark.slow]

SETTINGS = (
    "model=tiny",
    "stage=kl",
    "stages.kl.follows=[]",
    "stages.kl.budget.trials=2",
    "budget.steps=3",
    "budget.warmup_steps=1",
    'verl=["data.train_batch_size=8","actor_rollout_ref.actor.ppo_mini_batch_size=4","data.max_response_length=12",'
    '"actor_rollout_ref.rollout.max_num_seqs=1"]',  # rounding must not depend on which requests share a batch
)
MEASURED = ("timing", "perf/", "tokens_per_s")


def done(folder: Path, name: str) -> dict[str, list[dict[str, float]]]:
    """Trial id to what each of its steps did, without what tells how fast it was."""
    files = (folder / name).glob("trials/*/metrics.jsonl")
    rows = {f.parent.name: [json.loads(line)["data"] for line in f.read_text().splitlines()] for f in files}
    return {
        trial_id: [{k: v for k, v in row.items() if not any(m in k for m in MEASURED)} for row in steps]
        for trial_id, steps in rows.items()
    }


def test_two_campaigns_at_once_do_what_each_would_do_alone(tmp_path: Path, world: dict[str, object]) -> None:
    """The same campaign twice: a sample, a weight or a queue of the other one would show in the last digits."""
    sources = (
        f"model.path={world['actor_rollout_ref.model.path']}",
        f"task.train_files={world['data.train_files']}",
        f"task.val_files={world['data.val_files']}",
    )
    drivers = [
        subprocess.Popen(
            [sys.executable, "-m", "sweep", *SETTINGS, *sources, f"campaign={name}", f"runs={tmp_path}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [driver.communicate(timeout=500)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], "\n".join(said)
    first, second = done(tmp_path, "one"), done(tmp_path, "two")
    assert len(first) == 2 and all(len(steps) == 3 for steps in first.values())
    assert first == second
