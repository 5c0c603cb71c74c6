"""Lines without their wrapping."""

from __future__ import annotations

import pytest

from sweep.health.doctor_lines import frame_name, raised_type, strip_prefixes


@pytest.mark.parametrize(
    ("raw", "text", "process"),
    [
        ("plain", "plain", ""),
        ("\x1b[36m(TaskRunnerV1 pid=4378)\x1b[0m ValueError: x", "ValueError: x", "4378"),
        ("(WorkerDict pid=5, ip=10.0.0.1) ValueError: x", "ValueError: x", "5"),
        (
            "(vLLMHttpServer pid=1) (EngineCore_DP0 pid=2) ERROR 03-19 11:07:19 [core.py:1006] ValueError: x",
            "ValueError: x",
            "1",
        ),
        ("ERROR 06-02 05:17:18 core.py:387] ValueError: x", "ValueError: x", ""),
        ("[rank3]:[E626 06:24:44.90 ProcessGroupNCCL.cpp:616] Watchdog", "Watchdog", ""),
        ("[rank0]: ValueError: x", "ValueError: x", ""),
        ("2026-01-12 01:23:00,460 INFO worker.py:2023 -- Started", "worker.py:2023 -- Started", ""),
        ("trainer-1  | ValueError: x", "ValueError: x", ""),
        ("ValueError: x [repeated 12x across cluster] (Ray deduplicates logs)", "ValueError: x", ""),
        ("Error in inspecting model", "Error in inspecting model", ""),
    ],
)
def test_what_processes_put_in_front_of_a_line_is_taken_off(raw: str, text: str, process: str) -> None:
    line = strip_prefixes(raw)
    assert (line.text, line.process) == (text, process)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ValueError: x", "ValueError"),
        ("AssertionError", "AssertionError"),
        ("torch.OutOfMemoryError: CUDA", "torch.OutOfMemoryError"),
        ("ray.exceptions.RayTaskError(OSError): ray::f()", "ray.exceptions.RayTaskError(OSError)"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("omegaconf.errors.MissingMandatoryValue: Missing", "omegaconf.errors.MissingMandatoryValue"),
        ("the ValueError: x", None),
        ("loss: 3", None),
        ("ValueErrors: x", None),
        ("Failed to import with ImportError('x')", None),
    ],
)
def test_only_a_line_that_names_an_exception_does_so(text: str, expected: str | None) -> None:
    assert raised_type(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('  File "/x/a b.py", line 12, in update_actor', "update_actor"),
        ("  in wake_up", "wake_up"),
        ("ray::WorkerDict.actor_rollout_update_actor() (pid=7)", "WorkerDict.actor_rollout_update_actor"),
        ("we are in trouble", None),
        ("plain", None),
    ],
)
def test_a_frame_gives_its_function(text: str, expected: str | None) -> None:
    assert frame_name(text) == expected
