"""The long run's command: verl's shell and Hydra read back exactly what was meant."""

from __future__ import annotations

import shlex

import pytest

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.compose import compose
from sweep.engines.verl.environment import Machine, cpu_engine, gpu_engine
from sweep.engines.verl.long_run import best_command
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


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """Environment variables and arguments, as a POSIX shell splits them."""
    words = shlex.split(command.replace("\\\n", " "))
    start = words.index("python3")
    return dict(w.split("=", 1) for w in words[:start]), words[start + 3 :]


def composed_of(engine: EngineSettings, **settings: object) -> dict[str, object]:
    _, arguments = words_of(best_command(Trial(Overrides.of({**BASE, **settings}), 4, 500), engine))
    composed = compose(arguments)
    assert composed.unknown == ()
    return dict(composed.config)


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
    assert saving == [1000, 3, "auto"]
    assert composed_of(ENGINES[1], **{"trainer.save_freq": 50})["trainer.save_freq"] == 50


@pytest.mark.parametrize("engine", ENGINES)
def test_the_plug_ins_are_loaded_in_verls_process_and_in_its_workers(engine: EngineSettings) -> None:
    command = best_command(Trial(Overrides.of(BASE), 4, 500), engine)
    variables, arguments = words_of(command)
    config = compose(arguments).config
    for name, value in variables.items():
        assert config[f"ray_kwargs.ray_init.runtime_env.env_vars.{name}"] == value
    assert variables["VERL_USE_EXTERNAL_MODULES"] == "sweep.engines.verl.plugins"
    assert config["trainer.v1.trainer_mode"] == "sweep" and config["sweep.reuse"] is False


def test_on_the_cpu_verls_own_cluster_claims_enough() -> None:
    config = composed_of(ENGINES[0])
    assert (config["ray_kwargs.ray_init.num_cpus"], config["ray_kwargs.ray_init.num_gpus"]) == (10, 1)


def test_marks_become_paths() -> None:
    trial = Trial(Overrides.of({**BASE, "data.train_files": "asset:train"}), 4, 500)
    command = best_command(trial, ENGINES[1], locate=lambda o: o.merged({"data.train_files": "/d/train.parquet"}))
    assert "data.train_files='\"'\"'/d/train.parquet'\"'\"'" in command


@pytest.mark.parametrize(("rollout", "platform"), [({}, "cpu"), ({"actor_rollout_ref.rollout.name": "vllm"}, None)])
def test_without_an_engine_it_is_for_gpus_if_the_trial_names_their_rollout(
    rollout: dict[str, object], platform: str | None
) -> None:
    variables, _ = words_of(best_command(Trial(Overrides.of({**BASE, **rollout}), 4, 500)))
    assert variables.get("VERL_PLATFORM") == platform
