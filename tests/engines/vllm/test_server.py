"""The server's process: its arguments, its start, how it fails, and that nothing of it stays. vLLM itself is a fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.failure import FailureClass
from sweep.engines.vllm.console import evidence
from sweep.engines.vllm.server import ServerFailed, ServerSettings, VllmServer, healthy
from sweep.health.doctor import classify
from tests.engines.vllm.test_own_process import running


def server_on(model: Path, tmp_path: Path) -> VllmServer:
    return VllmServer(ServerSettings(str(model), max_num_seqs=32), tmp_path / "console", classify)


def test_settings_become_options_and_what_is_not_set_is_left_to_vllm() -> None:
    found = ServerSettings("M", gpu_memory_utilization=0.4, max_num_batched_tokens=8192, more=("--dtype=half",))
    line = " ".join(found.arguments(1234))
    assert line.startswith("-m vllm.entrypoints.openai.api_server --model M ")
    assert "--host 127.0.0.1 --port 1234" in line and line.endswith("--dtype=half")
    assert "--gpu-memory-utilization 0.4 --max-num-batched-tokens 8192" in line
    assert "--max-num-seqs" not in line and "--max-model-len" not in line


def test_it_gets_ready_and_closing_it_leaves_no_process(fake_vllm: Path, model: Path, tmp_path: Path) -> None:
    server = server_on(model, tmp_path)
    server.await_ready(60.0)
    members = server.members()
    assert len(members) == 2 and healthy(server.port)
    server.close()
    assert not any(running(pid) for pid in members) and not healthy(server.port)
    server.close()


@pytest.mark.parametrize(
    ("mode", "failure_class", "said"),
    [
        ("oom", FailureClass.OOM_GPU, "CUDA out of memory"),
        ("no cache", FailureClass.INFEASIBLE_CONFIG, "No available memory for the cache blocks"),
        ("broken", FailureClass.ENV_FAULT, "No module named 'vllm._C'"),
    ],
)
def test_a_server_that_dies_at_its_start_is_classed_by_its_console(
    fake_vllm: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    failure_class: FailureClass,
    said: str,
) -> None:
    monkeypatch.setenv("FAKE_VLLM", mode)
    server = server_on(model, tmp_path)
    with pytest.raises(ServerFailed, match="ended before it was ready") as caught:
        server.await_ready(60.0)
    server.close()
    assert caught.value.failure_class is failure_class
    assert said in str(caught.value) and str(tmp_path / "console") in str(caught.value)


def test_a_server_that_never_gets_ready_is_a_hang(
    fake_vllm: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "hang")
    server = server_on(model, tmp_path)
    with pytest.raises(ServerFailed, match=r"not ready within 1\.5 s") as caught:
        server.await_ready(1.5)
    server.close()
    assert caught.value.failure_class is FailureClass.HANG


def test_warnings_of_vllm_are_no_evidence() -> None:
    console = (
        "(APIServer pid=7) WARNING 11-30 14:46:09 [system_utils.py:299] errors like `OSError: [Errno 24]`\n"
        "WARNING 11-30 14:46:09 [x.py:1] something\n"
        "(EngineCore pid=8) ERROR 11-30 14:46:25 [core.py:1349] RuntimeError: WARNING 11-30 means nothing here\n"
        "plain text"
    )
    assert evidence(console).splitlines() == console.splitlines()[2:]
