"""`python -m sweep.doctor` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.doctor import main

OOM = "step:4 - a:1\n  in wake_up\nCUDA Error: out of memory at /b/csrc/cumem_allocator.cpp:62\n"


def test_the_text_names_code_line_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text(OOM)
    assert main([str(log)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("CUDA_OOM")
    assert "line 3" in said and "rollout_wake_up" in said and "gpu_memory_utilization" in said


def test_json_holds_the_whole_diagnosis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text(OOM)
    main([str(log), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["code"], said["class"], said["retry"], said["last_step"]) == ("CUDA_OOM", "OOM_GPU", "NEW_CONFIG", 4)


def test_a_finished_run_exits_with_0(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("step:4 - a:1\n")
    assert main([str(log), "--total-steps", "4", "--exit-code", "0"]) == 0


def test_checkpoints_that_are_named_are_offered_for_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_text("step:222 - a:1\nAssertionError: Memory usage increased after sleeping.\n")
    main([str(log), "--checkpoint", "global_step_220"])
    assert "resume from global_step_220" in capsys.readouterr().out


def test_the_version_of_ray_stands_in_the_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text("Failed to register worker 01ab to Raylet. IOError: Unable to register worker with raylet.\n")
    main([str(log), "--granted-cpus", "8", "--host-cpus", "112", "--ray-version", "2.47.1"])
    assert "(Ray 2.47.1 here)" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent.log")]) == 2
    assert "absent.log cannot be read" in capsys.readouterr().err


def test_binary_content_is_no_obstacle(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(bytes(range(256)) * 50 + b"\nCUDA out of memory\n")
    assert main([str(log)]) == 1


def test_standard_input_works_through_the_module() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "sweep.doctor", "-", "--json"], input=OOM, capture_output=True, text=True
    )
    assert json.loads(run.stdout)["code"] == "CUDA_OOM"
    assert run.returncode == 1
