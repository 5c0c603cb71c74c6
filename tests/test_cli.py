"""The command line as a user meets it: help, refusals, exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import __version__
from sweep.cli import CONFIGURATION, DONE, INTERRUPTED, run


def sweep(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_help_names_every_stage_and_exit_code(capsys):
    assert run(["--help"]) == DONE
    shown = capsys.readouterr().out
    for word in ("minibatch", "kl", "token_budget", "lr_lambda", "budget.steps", "campaign=", "exit codes: 0 done"):
        assert word in shown


def test_help_imports_nothing_heavy():
    code = "import sys; from sweep.cli import run; run(['--help']); print([m for m in sys.modules if m in HEAVY])"
    heavy = "HEAVY = {'torch', 'ray', 'optuna', 'mlflow', 'verl', 'hydra', 'numpy', 'scipy', 'statsmodels'}; "
    done = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().endswith("[]"), done.stdout[-200:] + done.stderr[-500:]


def test_version(capsys):
    assert run(["--version"]) == DONE
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_multirun_is_refused_with_the_reason(flag: str, capsys):
    assert run([flag, "budget.steps=1,2"]) == CONFIGURATION
    assert "second driver" in capsys.readouterr().err


def test_an_unknown_option_names_the_known_ones(capsys):
    assert run(["--hepl"]) == CONFIGURATION
    assert "--help" in capsys.readouterr().err


def test_cfg_prints_the_whole_configuration(capsys):
    assert run(["--cfg", "model=qwen2.5-0.5b"]) == DONE
    shown = capsys.readouterr().out
    assert "first_factor: 0.7" in shown
    assert "Qwen/Qwen2.5-0.5B-Instruct" in shown


def test_a_stage_without_its_upstream_exits_2_names_the_command_and_makes_nothing(tmp_path: Path):
    done = sweep("stage=kl", "campaign=empty", cwd=tmp_path)
    assert done.returncode == CONFIGURATION
    assert "stage=minibatch" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_needs_a_gpu_says_so_before_anything_starts(tmp_path: Path):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has an NVIDIA GPU")
    done = sweep("model=qwen2.5-7b", cwd=tmp_path)
    assert done.returncode == CONFIGURATION
    assert "needs 8 NVIDIA GPU(s), but this machine has 0" in done.stderr
    assert "model=tiny" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_exits_2(tmp_path: Path):
    (tmp_path / "runs").write_text("a file, not a folder")
    done = sweep("campaign=x", cwd=tmp_path)
    assert done.returncode == CONFIGURATION
    assert "cannot write to" in done.stderr


def test_a_storage_that_cannot_be_opened_exits_2_and_shows_no_password(tmp_path: Path):
    done = sweep("storage=postgresql://user:secret@127.0.0.1:1/none", cwd=tmp_path)
    assert done.returncode == CONFIGURATION
    assert "secret" not in done.stderr + done.stdout


def test_secrets_of_the_command_line_are_shown_neither_in_a_refusal_nor_in_the_configuration(capsys):
    secret = ["storage=postgresql://me:hunter2@db/x", "tracking=http://me:hunter2@ml:5000"]
    assert run([*secret, "budget.steps=none"]) == CONFIGURATION
    assert run(["--cfg", *secret]) == DONE
    seen = capsys.readouterr()
    assert "hunter2" not in seen.out + seen.err
    assert "postgresql://me:***@db/x" in seen.out and "http://me:***@ml:5000" in seen.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_politely_with_the_command_to_go_on(number: int, tmp_path: Path):
    arguments = ["engine=rehearsal", "model=smollm2-135m", "budget.steps=400", "budget.seeds=8", "campaign=long"]
    arguments += ['verl=["actor_rollout_ref.actor.optim.lr=2e-6"]', "storage=null"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if "trial 2 of" in line:
            break
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    command = error.rpartition("go on with: ")[2]
    assert shlex.split(command) == ["python", "-m", "sweep", *arguments]  # as a shell reads it
    assert (tmp_path / "runs" / "long" / "optuna.db").exists()


def test_a_plan_is_printed_and_nothing_is_made(tmp_path: Path):
    done = sweep("plan=true", "model=qwen2.5-7b", f"runs={tmp_path / 'runs'}", cwd=tmp_path)
    assert done.returncode == DONE, done.stderr
    assert "all " in done.stdout
    assert done.stdout.strip().endswith("nothing was started")
    assert list(tmp_path.iterdir()) == []


def test_a_spent_budget_exits_5_and_prints_the_command_that_goes_on(tmp_path: Path):
    asked = ("engine=rehearsal", f"runs={tmp_path / 'runs'}", "model=qwen2.5-0.5b", "stage=minibatch")
    done = sweep(*asked, "budget.gpu_hours=1e-9", cwd=tmp_path)
    assert done.returncode == 5
    assert "finished trials are kept, go on with: python -m sweep engine=rehearsal" in done.stderr
    more = float(done.stderr.rpartition("budget.gpu_hours=")[2])
    assert more > 2e-9  # a trial was already dearer than the budget: twice that is of no use
    assert sweep(*asked, cwd=tmp_path).returncode == DONE


def test_a_reader_that_leaves_early_costs_neither_the_campaign_nor_its_exit_code(tmp_path: Path):
    asked = ("engine=rehearsal", f"runs={tmp_path / 'runs'}", "stage=minibatch", "budget.steps=8", "campaign=piped")
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", *asked], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    assert (process.wait(timeout=60), error) == (DONE, "")
    assert (tmp_path / "runs" / "piped" / "summary.json").exists()
    assert not (tmp_path / "runs" / "assets").exists()  # a rehearsal loads no model


@pytest.mark.parametrize(
    "asked",
    [
        ("sweep", "--help"),
        ("sweep", "--version"),
        ("sweep.freeze", "--help"),
        ("sweep.ui", "--help"),
        ("sweep.preflight", "--help"),
        ("sweep.diagnose", "--help"),
        ("sweep.doctor", "--help"),
        ("sweep.pressure", "--help"),
        ("sweep.preflight", "--no-verl", "algorithm.lam=0.97"),
    ],
)
def test_what_is_printed_for_a_reader_that_is_gone_is_no_error(asked: tuple[str, ...], tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *asked], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path
        )
    finally:
        os.close(writing)
    assert "BrokenPipe" not in done.stderr, done.stderr
    assert done.returncode in (0, 2)


def test_a_request_that_cannot_work_leaves_no_folder_behind(tmp_path: Path):
    for wrong in ("earlier=nobody", "tracking=http://127.0.0.1:9", "storage=postgresql://127.0.0.1:9/x"):
        done = sweep("engine=rehearsal", f"runs={tmp_path / 'runs'}", "campaign=refused", wrong, cwd=tmp_path)
        assert done.returncode == CONFIGURATION and "Traceback" not in done.stderr
        assert not (tmp_path / "runs" / "refused").exists()
