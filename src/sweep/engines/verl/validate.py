"""verl's own start-up validation in a process of its own: `verl_objections`.

verl imports torch and Ray, which takes ten seconds and more and must not happen in a command line or a driver. The
child composes the same overrides, runs the checks that `main_ppo` runs first, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from sweep.health.preflight.finding import PreflightFinding, error, info

TIMEOUT_SECONDS = 180.0
"""Importing verl takes 10 to 60 s, by the machine. Source: measured on verl 0.9.1."""

MODEL_CLASS = "HFModelConfig"
"""What verl builds from a model's folder; it fails where the model is not on this machine."""

ANSWER = "sweep-validate:"
"""Marks the child's answer among the lines that verl prints."""

SOURCE = "verl utils/config.py validate_config"


def verl_objections(
    overrides: Sequence[str], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[PreflightFinding, ...]:
    """What verl's own validation says against the overrides; empty if it passes.

    Where verl cannot be asked (not importable, too slow) the answer is one INFO that says so, never an error.
    """
    command = [sys.executable, "-c", "from sweep.engines.verl.validate import answer; answer()"]
    try:
        child = subprocess.run(
            command,
            input=json.dumps(list(overrides)),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired:
        return (_not_asked(f"it did not answer within {timeout_seconds:g} s"),)
    lines = [line for line in child.stdout.splitlines() if line.startswith(ANSWER)]
    if not lines:
        return (_not_asked((child.stderr.strip().splitlines() or ["it said nothing"])[-1]),)
    said = json.loads(lines[-1].removeprefix(ANSWER))
    if said["kind"] == "passed":
        return ()
    if said["kind"] == "absent":
        return (_not_asked(said["message"]),)
    return (
        error(
            "VERL_REFUSES",
            f"verl's own validation refuses the configuration: {said['message']}",
            "verl would exit before it starts Ray",
            source=SOURCE,
        ),
    )


def answer() -> None:
    """Read overrides from standard input and print what verl thinks of them; runs in the child."""
    print(f"\n{ANSWER}{json.dumps(_ask(json.load(sys.stdin)))}", flush=True)


def _ask(overrides: list[str]) -> dict[str, str]:
    warnings.simplefilter("ignore")
    try:
        from hydra import compose, initialize_config_dir
        from verl.utils.config import validate_config

        from sweep.engines.verl.compose import ROOT_CONFIG, config_folder
    except ImportError as problem:
        return {"kind": "absent", "message": str(problem)}
    try:
        with initialize_config_dir(str(config_folder()), version_base=None):
            tree: Any = compose(ROOT_CONFIG, overrides=overrides)
        _validate(tree, validate_config)
    except Exception as problem:  # the child's whole purpose is to report whatever verl raises
        return {"kind": "refused", "message": _chain(problem)}
    return {"kind": "passed", "message": ""}


def _validate(tree: Any, validate_config: Any) -> None:
    """Run verl's checks; a model that is not on this machine does not hide the checks behind it."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    needs = {"use_reference_policy": need_reference_policy(tree), "use_critic": need_critic(tree)}
    try:
        validate_config(tree, **needs)
    except Exception as problem:
        if MODEL_CLASS not in str(problem):
            raise
        tree.critic.model = None
        validate_config(tree, **needs)


def _chain(problem: BaseException) -> str:
    """The error's first line and those of its causes; a bare assertion is named by its source line."""
    told: list[str] = []
    step: BaseException | None = problem
    while step is not None:
        line = (str(step).strip().splitlines() or [""])[0]
        told.append(line or _asserted(step))
        step = step.__cause__
    return " <- ".join(told)


def _asserted(problem: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(problem.__traceback__)
    return f"{type(problem).__name__} at {frames[-1].line}" if frames else type(problem).__name__


def _not_asked(reason: str) -> PreflightFinding:
    return info(
        "VERL_NOT_ASKED", f"verl's own validation was not run: {reason}", "all other checks were", source=SOURCE
    )
