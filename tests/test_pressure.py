"""`python -m sweep.pressure` as a user calls it, against a fake vLLM; the real one needs a GPU (tests marked `gpu`)."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.pressure import main, server_settings
from tests.engines.vllm.conftest import fake_vllm, model
from tests.engines.vllm.test_own_process import eventually, running

__all__ = ["fake_vllm", "model"]

QUICK = ["--cpu", "--seconds", "1.2", "--prompt-tokens", "8", "--start-seconds", "60"]


@pytest.fixture(autouse=True)
def consoles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles of servers that failed stay behind; here they go with the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def options(*arguments: str) -> object:
    from sweep.pressure import _parser

    return _parser().parse_intermixed_args(arguments)


def test_enough_memory_under_ten_concurrent_requests_passes(
    fake_vllm: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"model={model}", *QUICK, "--free-gib", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (check,) = found["checks"]
    assert (found["passed"], found["verdict"], check["most_at_once"]) == (True, "PASSES", 10)
    assert check["complete"] == check["sent"] == 10 * check["rounds"]
    assert check["tokens"] == 128 * check["sent"] and check["samples"] >= 5
    assert check["tokens_per_s"] > 0


def test_too_little_memory_fails_with_3_and_says_how_much_was_left(
    fake_vllm: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"model={model}", *QUICK, "--free-gib", "1e6"]) == 3
    said = capsys.readouterr().out
    assert "FAILS" in said and "GiB free on GPU 0, wanted 1e+06" in said


def test_a_longer_load_is_judged_and_measured_too(
    fake_vllm: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--free-gib", "0.1", "--load-seconds", "1.2", "--load-requests", "32", "--json"]
    assert main([f"model={model}", *QUICK, *more]) == 0
    first, second = json.loads(capsys.readouterr().out)["checks"]
    assert (first["most_at_once"], second["most_at_once"]) == (10, 32)


@pytest.mark.parametrize(
    ("mode", "code", "verdict"),
    [
        ("oom", 3, "OUT_OF_MEMORY"),
        ("no cache", 3, "DOES_NOT_START"),
        ("dies under load", 3, "OUT_OF_MEMORY"),
        ("errors", 3, "REQUESTS_FAILED"),
        ("short", 3, "REQUESTS_FAILED"),
    ],
)
def test_settings_that_do_not_work_fail_the_check(
    fake_vllm: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    code: int,
    verdict: str,
) -> None:
    monkeypatch.setenv("FAKE_VLLM", mode)
    assert main([f"model={model}", *QUICK, "--free-gib", "0.1", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_a_broken_vllm_is_no_verdict_on_the_settings(
    fake_vllm: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "broken")
    assert main([f"model={model}", *QUICK]) == 1
    assert "No module named 'vllm._C'" in capsys.readouterr().err


def test_without_vllm_it_says_so_and_exits_with_2(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vllm is installed here")
    assert main([f"model={model}"]) == 2
    assert "vllm is not installed" in capsys.readouterr().err


def test_without_a_gpu_it_says_so_and_exits_with_2(
    fake_vllm: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main([f"model={model}"]) == 2
    assert "needs 1 NVIDIA GPU(s), but this process sees 0" in capsys.readouterr().err


def test_without_the_model_it_says_so_and_exits_with_2(fake_vllm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model=/models/nothing-here"]) == 2
    assert "there is no model at /models/nothing-here" in capsys.readouterr().err


def test_a_console_that_cannot_be_written_exits_with_2(
    fake_vllm: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    assert main([f"model={model}", *QUICK, "--log", str(tmp_path / "taken")]) == 2
    assert "taken/server.log cannot be written: File exists" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["actor.lr=1"]], ids=["nothing", "another key"])
def test_what_names_no_model_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "wanted model=PATH" in capsys.readouterr().err


def test_a_preset_gives_its_settings_and_options_override_them() -> None:
    found = server_settings(options("model=smollm2-135m", "model.path=/m/S", "--max-num-seqs", "64"))  # type: ignore[arg-type]
    assert (found.model, found.max_num_batched_tokens, found.max_num_seqs) == ("/m/S", 8192, 64)
    assert (found.gpu_memory_utilization, found.tensor_parallel_size) == (0.4, 1)


def test_a_path_gives_none() -> None:
    found = server_settings(options("model=/m/S", "--gpu-memory-utilization", "0.65"))  # type: ignore[arg-type]
    assert (found.model, found.gpu_memory_utilization, found.max_num_seqs) == ("/m/S", 0.65, None)


def test_a_preset_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model=no-such-preset"]) == 2
    assert "smollm2-135m" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_ends_what_it_started(
    fake_vllm: Path, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    arguments = [f"model={model}", *QUICK, "--seconds", "600", "--log", str(tmp_path / "log")]
    check = subprocess.Popen(
        [sys.executable, "-m", "sweep.pressure", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell leaves it ignored
    )
    assert check.stderr is not None
    eventually(lambda: "ready after" in check.stderr.readline(), 60.0)  # type: ignore[union-attr]
    started = _children(check.pid)
    assert len(started) == 2  # the server and its engine
    check.send_signal(number)
    assert check.wait(60.0) == code
    assert not any(running(pid) for pid in started)


def _children(pid: int) -> list[int]:
    """All descendants."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _parent(int(entry)) == parent:
                found.append(int(entry))
                todo.append(int(entry))
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def test_help_names_the_exit_codes_and_needs_nothing_heavy() -> None:
    code = """
import sys
from sweep import pressure
try:
    pressure.main(["--help"])
finally:
    print("loaded:", sorted({"torch", "ray", "vllm", "transformers", "mlflow", "optuna"} & set(sys.modules)))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 fails the check" in said.stdout and "loaded: []" in said.stdout
