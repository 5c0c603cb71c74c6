"""What a path names is decided by its content; the real logs are read without loss."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from pathlib import Path

import pytest

from sweep.errors import ConfigError
from sweep.health.diagnosis import diagnose
from sweep.health.evidence import RunFacts
from sweep.health.readers.lines import MAX_LINE_BYTES, split_lines
from sweep.health.readers.open_log import read_runs

REAL = Path(__file__).parents[2] / "data" / "real_logs"


@pytest.mark.parametrize("name", ["h200-smollm2-135m-ppo", "h200-fast-poll", "cpu-ppo"])
def test_a_real_file_log_is_read_without_loss(name: str) -> None:
    path = REAL / f"verl-0.9.1-{name}.jsonl"
    (run,) = read_runs(str(path))
    wanted = [json.loads(line) for line in path.read_text().splitlines()]
    assert list(run.table.rows()) == [(row["step"], row["data"]) for row in wanted]
    assert run.notes == ()


def test_a_real_console_log_says_what_the_file_log_of_the_same_run_says() -> None:
    (console,) = read_runs(str(REAL / "verl-0.9.1-h200-console-steps.log"))
    (file,) = read_runs(str(REAL / "verl-0.9.1-h200-smollm2-135m-ppo.jsonl"))
    pairs = list(zip(console.table.rows(), file.table.rows(), strict=True))
    assert len(pairs) == 18 and console.notes == ()
    for (step, printed), (same_step, logged) in pairs:
        assert step == same_step and printed.keys() == logged.keys()
        assert all(math.isclose(printed[n], logged[n], rel_tol=1e-12, abs_tol=1e-300) for n in logged)


def test_the_real_seeds_are_four_runs_without_loss() -> None:
    path = REAL / "verl-0.9.1-cpu-4-seeds.csv"
    runs = read_runs(str(path))
    wanted = list(csv.DictReader(path.open()))
    assert [len(run.table) for run in runs] == [100] * 4
    cells = {(run.label[-1], step, name): v for run in runs for step, m in run.table.rows() for name, v in m.items()}
    for row in wanted:
        for name in row.keys() - {"seed", "step"}:
            assert cells[row["seed"], int(row["step"]), name] == float(row[name])


def test_a_throughput_table_is_refused_as_no_training_log() -> None:
    with pytest.raises(ConfigError, match="has a step"):
        read_runs(str(REAL / "vllm-0.24.0-h200-smollm2-135m-budget.jsonl"))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("verl-0.9.1-h200-smollm2-135m-ppo.jsonl", "INSUFFICIENT_DATA"),
        ("verl-0.9.1-h200-console-steps.log", "INSUFFICIENT_DATA"),
        ("verl-0.9.1-h200-fast-poll.jsonl", "LENGTH_TRUNCATED"),
        ("verl-0.9.1-cpu-ppo.jsonl", "LENGTH_TRUNCATED"),
        ("verl-0.9.1-cpu-4-seeds.csv", "KL_NOT_MEASURED"),
    ],
)
def test_the_diagnosis_of_a_real_log_is_sensible(name: str, verdict: str) -> None:
    for run in read_runs(str(REAL / name)):
        assert diagnose(run.table, RunFacts(config=run.config)).verdict == verdict


def test_a_packed_log_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "log.txt.gz"
    path.write_bytes(gzip.compress(b"step:1 - a:0.5\n"))
    assert len(read_runs(str(path))[0].table) == 1
    path.write_bytes(gzip.compress(b"step:1 - a:0.5\n" * 100)[:-20])
    with pytest.raises(ConfigError, match="to its end"):
        read_runs(str(path))


def test_a_folder_is_its_most_exact_log_and_with_two_of_a_kind_a_question(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text("step:1 - a:0.5\n")
    assert dict(read_runs(str(tmp_path))[0].table.rows()) == {1: {"a": 0.5}}
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "data": {"a": 1.0}}\n')
    assert dict(read_runs(str(tmp_path))[0].table.rows()) == {1: {"a": 1.0}}
    (tmp_path / "other.jsonl").write_text('{"step": 1, "data": {"a": 1.0}}\n')
    with pytest.raises(ConfigError, match="name one file"):
        read_runs(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\x01\x02", b"hello\n", b"{", b"[]", b"step,\n"])
def test_what_is_no_log_is_refused_clearly(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        read_runs(str(path))
    message = str(refusal.value)
    assert message and message[0].islower() and not message.endswith(".")


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_runs(str(tmp_path / "none.jsonl"))


def test_a_line_without_an_end_is_cut_into_pieces() -> None:
    pieces = list(split_lines(io.BytesIO(b"x" * (3 * MAX_LINE_BYTES) + b"\nstep:1 - a:1\r\nlast")))
    assert max(map(len, pieces)) <= 2 * MAX_LINE_BYTES + 1
    assert pieces[-1] == b"last" and b"step:1 - a:1" in pieces
