"""The reset on verl's engines sharded over two ranks (gloo, CPU), FSDP 2 and FSDP 1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.verl import small_world

pytestmark = pytest.mark.verl

REPOSITORY = Path(__file__).resolve().parents[4]
RANKS = (0, 1)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    model = small_world.write_model(folder / "model")
    environment = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "sweep.engines.verl.plugins",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-m", "tests.engines.verl.plugins.sharded_ranks", str(model)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in RANKS
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    for process, output in zip(started, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]
    lines = [next(line for line in output.splitlines() if line.startswith("FOUND ")) for output in outputs]
    return [json.loads(line.removeprefix("FOUND ")) for line in lines]


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp"])
@pytest.mark.parametrize("rank", RANKS)
def test_a_reset_rank_trains_as_it_did_the_first_time(ranks: list[dict[str, Any]], strategy: str, rank: int) -> None:
    found = ranks[rank][strategy]
    assert found["warm"] == found["cold"]
    assert found["same_end"] is True
    assert found["other"] != found["cold"]["steps"]


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp"])
@pytest.mark.parametrize("rank", RANKS)
def test_the_guard_sees_what_is_left_on_each_rank_and_nothing_after_the_reset(
    ranks: list[dict[str, Any]], strategy: str, rank: int
) -> None:
    found = ranks[rank][strategy]
    assert found["clean"] == []
    whole = " ".join(found["dirty"])
    for phrase in ("tensors changed", "optimizer entries left", "schedule at step 4", "learning rate 0.05"):
        assert phrase in whole


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp"])
def test_both_ranks_take_part_in_one_model_whose_head_follows_the_seed(
    ranks: list[dict[str, Any]], strategy: str
) -> None:
    first, second = (ranks[rank][strategy] for rank in RANKS)
    assert "FSDP" in first["sharded"] or "FullyShardedDataParallel" in first["sharded"]
    assert first["cold"]["look"] == second["cold"]["look"]
    norms = [[step[1] for step in found["cold"]["steps"]] for found in (first, second)]
    assert norms[0] == norms[1]
    assert first["another_head_differs"] or second["another_head_differs"]


def test_the_head_is_the_same_however_the_critic_is_sharded(ranks: list[dict[str, Any]]) -> None:
    looks = [ranks[0][strategy]["cold"]["look"] for strategy in ("fsdp2", "fsdp")]
    assert looks[0] == pytest.approx(looks[1], abs=1e-2)  # bfloat16 sums in another order
