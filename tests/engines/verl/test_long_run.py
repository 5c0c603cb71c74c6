"""The long run's command: verl's shell and Hydra read back exactly what was meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.compose import compose
from sweep.engines.verl.environment import Machine, cpu_engine, gpu_engine
from sweep.engines.verl.long_run import best_script
from sweep.engines.verl.settings import ENDLESS_EPOCHS, EngineSettings

BASE = {
    "+sweep.schedule_steps": 10_000,
    "trainer.n_gpus_per_node": 1,
    "actor_rollout_ref.model.path": "/models/it's {mine}, $HOME",
    "algorithm.kl_ctrl.type": "band",
    "+algorithm.kl_ctrl.band_low": 0.04,
    "actor_rollout_ref.actor.optim.lr": 2e-6,
}
ENGINES = [cpu_engine(), gpu_engine(Machine())]


def words_of(script: str, *further: str, began_at: int = 1_700_000_000) -> tuple[dict[str, str], list[str]]:
    """Environment variables and arguments that a real shell running the script at this time gives."""
    with tempfile.TemporaryDirectory() as folder:
        interpreter, file = Path(folder, "interpreter"), Path(folder, "best.sh")
        interpreter.write_text(
            f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv[1:]]))"
        )
        interpreter.chmod(0o755)
        file.write_text(script)
        Path(folder, "date").write_text(f"#!/bin/sh\n[ $1 = +%s ] && echo {began_at}")
        Path(folder, "date").chmod(0o755)
        clean = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": str(interpreter)}
        done = subprocess.run(["sh", str(file), *further], env=clean, capture_output=True, text=True, check=True)
    variables, arguments = json.loads(done.stdout)
    assert arguments[:2] == ["-m", "verl.trainer.main_ppo"]
    return variables, arguments[2:]


def composed_of(engine: EngineSettings, **settings: object) -> dict[str, object]:
    _, arguments = words_of(best_script(Trial(Overrides.of({**BASE, **settings}), 4, 500), engine))
    composed = compose(arguments)
    assert composed.unknown == ()
    return dict(composed.config)


def config_of_workers(config: Mapping[str, object]) -> dict[str, object]:
    prefix = "ray_kwargs.ray_init.runtime_env.env_vars."
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_command_composes_in_verl_and_means_the_winner(engine: EngineSettings) -> None:
    config = composed_of(engine)
    assert config["actor_rollout_ref.model.path"] == BASE["actor_rollout_ref.model.path"]
    assert config["actor_rollout_ref.actor.optim.lr"] == 2e-6
    assert config["algorithm.kl_ctrl.band_low"] == 0.04
    assert config["data.seed"] == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_it_runs_the_whole_schedule_not_the_trials_budget(engine: EngineSettings) -> None:
    config = composed_of(engine)
    assert config["trainer.total_training_steps"] == config["sweep.schedule_steps"] == 10_000
    assert config["trainer.total_epochs"] == ENDLESS_EPOCHS


def test_it_saves_keeps_three_and_resumes_unless_the_user_says_otherwise() -> None:
    config = composed_of(ENGINES[1])
    saving = [config[f"trainer.{k}"] for k in ("save_freq", "max_actor_ckpt_to_keep", "resume_mode")]
    assert saving == [1000, None, "auto"]  # how many are kept is our plug-in's policy
    assert composed_of(ENGINES[1], **{"trainer.save_freq": 50})["trainer.save_freq"] == 50


@pytest.mark.parametrize("engine", ENGINES)
def test_the_plug_ins_are_loaded_in_verls_process_and_in_its_workers(engine: EngineSettings) -> None:
    command = best_script(Trial(Overrides.of(BASE), 4, 500), engine)
    variables, arguments = words_of(command)
    config = compose(arguments).config
    given = config_of_workers(config)
    assert given and {name: variables[name] for name in given} == given
    assert variables["VERL_USE_EXTERNAL_MODULES"] == "sweep.engines.verl.plugins"
    assert config["trainer.v1.trainer_mode"] == "sweep" and config["sweep.reuse"] is False


@pytest.mark.parametrize("engine", ENGINES)
def test_each_start_logs_to_a_file_of_its_own_since_verl_empties_what_it_opens(engine: EngineSettings) -> None:
    script = best_script(Trial(Overrides.of(BASE), 4, 500), engine, name="it's")
    for began_at in (1_700_000_000, 1_700_000_001):
        variables, arguments = words_of(script, began_at=began_at)
        config = compose(arguments).config
        of_workers = config_of_workers(config)["VERL_FILE_LOGGER_PATH"]
        assert variables["VERL_FILE_LOGGER_PATH"] == of_workers == f"sweep/it's-{began_at}.jsonl"
        assert config["actor_rollout_ref.model.path"] == BASE["actor_rollout_ref.model.path"]


def test_further_settings_go_on_to_verl_and_win() -> None:
    script = best_script(Trial(Overrides.of(BASE), 4, 500), ENGINES[1])
    _, arguments = words_of(script, "trainer.save_freq=7", "trainer.experiment_name='it is mine'")
    config = compose(arguments).config
    assert (config["trainer.save_freq"], config["trainer.experiment_name"]) == (7, "it is mine")


def test_the_interpreter_is_the_one_that_has_verl() -> None:
    script = best_script(Trial(Overrides.of(BASE), 4, 500), ENGINES[1], python="/opt/env/bin/python")
    assert '"${PYTHON:-/opt/env/bin/python}" -m verl.trainer.main_ppo' in script


def test_on_the_cpu_verls_own_cluster_claims_enough() -> None:
    config = composed_of(ENGINES[0])
    assert (config["ray_kwargs.ray_init.num_cpus"], config["ray_kwargs.ray_init.num_gpus"]) == (10, 1)


def test_marks_become_paths() -> None:
    trial = Trial(Overrides.of({**BASE, "data.train_files": "asset:train"}), 4, 500)
    command = best_script(trial, ENGINES[1], locate=lambda o: o.merged({"data.train_files": "/d/train.parquet"}))
    assert "data.train_files='\"'\"'/d/train.parquet'\"'\"'" in command


@pytest.mark.parametrize(("rollout", "platform"), [({}, "cpu"), ({"actor_rollout_ref.rollout.name": "vllm"}, None)])
def test_without_an_engine_it_is_for_gpus_if_the_trial_names_their_rollout(
    rollout: dict[str, object], platform: str | None
) -> None:
    variables, _ = words_of(best_script(Trial(Overrides.of({**BASE, **rollout}), 4, 500)))
    assert variables.get("VERL_PLATFORM") == platform
