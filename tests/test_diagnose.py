"""The command: text, JSON, figures, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.diagnose import main

REAL = Path(__file__).parent / "data" / "real_logs"


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    path = tmp_path / "healthy.jsonl"
    rows = (
        {
            "step": n,
            "data": {
                "critic/score/mean": 0.2 + 0.0008 * n,
                "actor/reward_kl_penalty": 0.06 + 0.0001 * n,
                "actor/grad_norm": 0.4,
            },
        }
        for n in range(1, 601)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_healthy_run_exits_with_zero(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(healthy)]) == 0
    assert "verdict: OK" in capsys.readouterr().out


def test_a_finding_exits_with_one_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(REAL / "verl-0.9.1-h200-fast-poll.jsonl")]) == 1
    printed = capsys.readouterr().out
    for part in ("verdict: LENGTH_TRUNCATED", "seen:", "confidence", "do:", "try: raise data.max_response_length"):
        assert part in printed


def test_an_unreadable_log_exits_with_two_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(REAL / "vllm-0.24.0-h200-smollm2-135m-budget.jsonl")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_json_holds_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(REAL / "verl-0.9.1-cpu-4-seeds.csv"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["version"] == 1 and [run["verdict"] for run in content["runs"]] == ["KL_NOT_MEASURED"] * 4
    assert {r["state"] for run in content["runs"] for r in run["screen"]} >= {"healthy", "not logged"}


@pytest.mark.parametrize("name", ["out.png", "out.html"])
def test_a_figure_is_written_for_each_run(tmp_path: Path, name: str) -> None:
    main([str(REAL / "verl-0.9.1-cpu-4-seeds.csv"), "--figure", str(tmp_path / name)])
    assert len(list(tmp_path.iterdir())) == 4
    main([str(REAL / "verl-0.9.1-h200-fast-poll.jsonl"), "--figure", str(tmp_path / name)])
    assert (tmp_path / name).stat().st_size > 10_000


def test_another_format_is_refused(tmp_path: Path, healthy: Path) -> None:
    assert main([str(healthy), "--figure", str(tmp_path / "x.bmp")]) == 2


def test_facts_and_limits_come_from_the_command_line(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(healthy), "--limit", "kl_explosion=0.1", "--limit", "kl_climb=0.05"]) == 1
    assert "KL_EXPLOSION" in capsys.readouterr().out
    assert main([str(healthy), "--limit", "grad_band=1e-6,2e-6"]) == main([str(healthy)]) == 0
    assert "band 1e-06 to 2e-06" in capsys.readouterr().out
    assert main([str(healthy), "--limit", "grad_band=2,1"]) == 2
    assert main([str(healthy), "--limit", "grad_band=1"]) == main([str(healthy), "--limit", "kl_climb=1,2"]) == 2
    assert main([str(healthy), "--limit", "no_such=1"]) == 2
    assert main([str(healthy), "--limit", "kl_explosion=high"]) == 2
    assert main([str(healthy), "--limit", "explained_variance=-0.5"]) == 0
    assert main([str(healthy), "--config", "novalue"]) == 2
    assert main([str(healthy), "--config", "algorithm.use_kl_in_reward=True", "--unit", "x=y", "--gpu-gib", "80"]) == 0


def test_the_save_interval_and_the_planned_length_come_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    creeping = tmp_path / "run.jsonl"
    row = '{"step": %d, "data": {"actor/perf/max_memory_reserved_gb": %f}}\n'
    creeping.write_text("".join(row % (step, 45 + 0.01 * step) for step in range(1, 302)))
    asked = [str(creeping), "--gpu-gib", "56"]
    main(asked)
    assert "warn: MEMORY_CREEP" in capsys.readouterr().out
    main([*asked, "--config", "trainer.save_freq=400"])
    assert "error: MEMORY_CREEP" in capsys.readouterr().out
    planned = ["--config", "data.train_batch_size=512", "--config", "trainer.total_epochs=15", "--rows", "7473"]
    main([*asked, *planned, "--steps", "211"])
    assert "WINDOW_EXCEEDS_RUN" in capsys.readouterr().out
    main([*asked, *planned, "--steps", "210"])
    assert "WINDOW_EXCEEDS_RUN" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "least"),
    [("grad_vanishing_steps=0", 1), ("critic_steps=0", 1), ("critic_steps=0.5", 1), ("creep_blocks=1", 2)],
)
def test_a_limit_that_counts_must_be_whole(
    healthy: Path, capsys: pytest.CaptureFixture[str], limit: str, least: int
) -> None:
    assert main([str(healthy), "--limit", limit]) == 2
    name, _, asked = limit.partition("=")
    assert f"--limit {name} must be a whole number, at least {least}, got {asked}" in capsys.readouterr().err


def test_the_command_starts_without_heavy_packages() -> None:
    heavy = ("numpy", "mlflow", "matplotlib", "torch", "ray")
    code = f"import sys, sweep.diagnose; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_a_file_log_needs_no_mlflow_and_no_matplotlib(healthy: Path) -> None:
    code = (
        f"import sys; from sweep.diagnose import main; main([{str(healthy)!r}]); "
        "print([m for m in ('mlflow', 'matplotlib', 'torch', 'ray', 'verl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
