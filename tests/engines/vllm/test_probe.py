"""The probe around a fake vLLM in a real process: what it measures, how it classes failures, what it leaves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sweep.core.failure import FailureClass
from sweep.engines.vllm.probe import Probed, ProbeFailed, ProbePoint, ProbeSettings, probe, probed
from sweep.engines.vllm.probe_child import engine_arguments
from sweep.engines.vllm.workload import Workload
from sweep.health.doctor import classify

WORKLOAD = Workload(prompts=4, prompt_tokens=5, response_tokens=25)


def settings(model: Path, **changes: object) -> ProbeSettings:
    return ProbeSettings(str(model), WORKLOAD, **{"rounds": 3, "warmup_rounds": 1, **changes})  # type: ignore[arg-type]


def test_a_point_is_measured_after_its_warm_up(fake_vllm: Path, model: Path, tmp_path: Path) -> None:
    found = probe(ProbePoint(20, 8, 0.4), settings(model), classify, tmp_path / "console")
    assert isinstance(found, Probed)
    assert len(found.round_tokens_per_s) == 3
    assert 1000 < found.tokens_per_s <= 2000  # the fake sleeps for 100 tokens at 2000 token/s
    assert found.preemptions == 9  # three a round, the warm-up's not counted
    assert (found.kv_cache_tokens, found.vllm) == (160, "0.0.fake")
    assert (found.peak_reserved_gib, found.free_gib, found.total_gib) == (16.0, 56.0, 80.0)
    assert found.wall_seconds > 0


def test_out_of_memory_is_a_classed_result_and_the_next_point_runs(
    fake_vllm: Path, model: Path, tmp_path: Path
) -> None:
    console = tmp_path / "console"
    failed = probe(ProbePoint(101, 8, 0.4), settings(model), classify, console)
    assert isinstance(failed, ProbeFailed)
    assert failed.failure.failure_class is FailureClass.OOM_GPU
    assert "CUDA out of memory" in failed.failure.message and str(console) in failed.failure.message
    assert isinstance(probe(ProbePoint(100, 8, 0.4), settings(model, rounds=1), classify, console), Probed)


def test_a_failure_is_not_classed_by_an_earlier_points_console(
    fake_vllm: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "engine broken")
    console = tmp_path / "console"
    console.write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    failed = probe(ProbePoint(20, 8, 0.4), settings(model), classify, console)
    assert isinstance(failed, ProbeFailed)
    assert failed.failure.failure_class is FailureClass.ENV_FAULT


def test_a_point_that_takes_too_long_is_a_hang(
    fake_vllm: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "engine hangs")
    slow = settings(model, start_seconds=1.0, round_seconds=0.1)
    failed = probe(ProbePoint(20, 8, 0.4), slow, classify, tmp_path / "console")
    assert isinstance(failed, ProbeFailed)
    assert failed.failure.failure_class is FailureClass.HANG
    assert failed.to_json()["failure"] == "HANG"


def test_the_rate_is_the_median_and_its_error_that_of_the_mean() -> None:
    result = {
        "rounds": [{"seconds": s, "tokens": 120} for s in (1.0, 2.0, 4.0)],
        "preemptions": 0,
        "kv_cache_tokens": 16,
        "init_seconds": 1.0,
    }
    found = probed(ProbePoint(8192, 256, 0.4), result)
    assert (found.tokens_per_s, found.round_tokens_per_s) == (60.0, (120.0, 60.0, 30.0))
    assert found.standard_error == pytest.approx(45.83 / math.sqrt(3), rel=1e-3)
    assert found.free_gib is None
    content = found.to_json()
    assert (content["max_num_batched_tokens"], content["tokens_per_s"], content["free_gib"]) == (8192, 60.0, None)


def test_a_single_round_has_no_error_to_state() -> None:
    found = probed(
        ProbePoint(1, 1, 0.1),
        {"rounds": [{"seconds": 1.0, "tokens": 5}], "preemptions": 0, "kv_cache_tokens": 1, "init_seconds": 0.0},
    )
    assert math.isnan(found.standard_error) and found.to_json()["standard_error"] is None


def test_the_engine_is_set_up_as_verl_sets_up_its_rollout(model: Path) -> None:
    found = engine_arguments(settings(model).spec(ProbePoint(8192, 256, 0.5)))
    assert (found["max_num_batched_tokens"], found["max_num_seqs"], found["gpu_memory_utilization"]) == (8192, 256, 0.5)
    assert (found["dtype"], found["enable_chunked_prefill"], found["enable_prefix_caching"]) == ("bfloat16", True, True)
    assert (found["logprobs_mode"], found["disable_log_stats"]) == ("processed_logprobs", False)
