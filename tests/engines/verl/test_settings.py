"""The complete settings of a trial: what wins over what, and that verl's own configuration knows every key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.compose import compose
from sweep.engines.verl.environment import Machine, cpu_engine, gpu_engine, notices, offline_variables
from sweep.engines.verl.settings import (
    ENDLESS_EPOCHS,
    EngineSettings,
    complete,
    cpus_of,
    gpus_of,
    launch_arguments,
    seeds,
    worker_variables,
)

BARE = Machine(versions=(("torch", "2.11.0"),))
FULL = Machine(versions=(("torch", "2.11.0"),), flash_attention=True, flashinfer_compiles=True)


def trial(seed: int = 3, steps: int = 40, **settings: object) -> Trial:
    return Trial(Overrides.of({"trainer.n_gpus_per_node": 1, **settings}), seed, steps)


def settings_of(one: Trial, engine: EngineSettings, reuse: bool = True) -> dict[str, object]:
    return complete(one, "/runs/x", engine, reuse).by_bare_key()


@pytest.mark.parametrize("engine", [cpu_engine(), gpu_engine(BARE), gpu_engine(FULL), gpu_engine(BARE, 1, 8)])
def test_verl_knows_every_key_that_the_engine_sets(engine: EngineSettings) -> None:
    lines = (*complete(trial(), "/runs/x", engine, True).command_line(), *worker_variables({"A": "b=c, {d}"}))
    composed = compose(lines)
    assert composed.unknown == ()
    assert composed.config["ray_kwargs.ray_init.runtime_env.env_vars.A"] == "b=c, {d}"
    assert composed.added == {line.split("=")[0].lstrip("+") for line in lines if line.startswith("+")}


def test_the_trial_decides_its_length_and_verls_epochs_never_do() -> None:
    found = settings_of(trial(steps=40, **{"trainer.total_epochs": 1, "trainer.total_training_steps": 7}), cpu_engine())
    assert found["trainer.total_training_steps"] == 40
    assert found["trainer.total_epochs"] == ENDLESS_EPOCHS


def test_the_schedule_is_the_whole_runs_if_the_trial_says_so_and_else_the_trials() -> None:
    assert settings_of(trial(), cpu_engine())["sweep.schedule_steps"] == 40
    assert settings_of(trial(**{"+sweep.schedule_steps": 10_000}), cpu_engine())["sweep.schedule_steps"] == 10_000


def test_every_seed_follows_the_trials_seed() -> None:
    keys = [k for k, _ in seeds(0)]
    found = settings_of(trial(seed=11), cpu_engine())
    assert len(keys) == 8 and all(found[k.lstrip("+")] == 11 for k in keys)


def test_a_seed_that_the_user_pins_stays() -> None:
    assert settings_of(trial(seed=11, **{"data.seed": 5}), cpu_engine())["data.seed"] == 5


def test_all_seeds_of_verl_are_among_them() -> None:
    mine = {k.lstrip("+") for k, _ in seeds(0)}
    verls = {k for k in compose(()).config if k.rsplit(".", 1)[-1] in ("seed", "data_loader_seed")}
    unused = {"reward.reward_model.rollout.seed", "distillation.teacher_models.teacher_model.inference.seed"}
    assert {k for k in verls - unused if not k.startswith("reward_model.")} <= mine


def test_a_trial_overrides_the_platforms_settings() -> None:
    found = settings_of(trial(**{"actor_rollout_ref.rollout.agent.num_workers": 3}), cpu_engine())
    assert found["actor_rollout_ref.rollout.agent.num_workers"] == 3


def test_files_go_to_the_trials_folder_and_nothing_is_resumed() -> None:
    found = settings_of(trial(), cpu_engine())
    assert found["trainer.default_local_dir"] == "/runs/x/checkpoints"
    assert found["trainer.resume_mode"] == "disable"
    assert found["trainer.logger"] == ("file",)


@pytest.mark.parametrize("reuse", [True, False])
def test_the_trainer_is_told_whether_it_serves_more_than_one_trial(reuse: bool) -> None:
    assert settings_of(trial(), cpu_engine(), reuse)["sweep.reuse"] is reuse


def test_without_flash_attention_sequences_are_padded_and_attention_is_pytorchs() -> None:
    found = settings_of(trial(), gpu_engine(BARE))
    for model in ("actor_rollout_ref.model", "critic.model"):
        assert found[f"{model}.override_config.attn_implementation"] == "sdpa"
        assert found[f"{model}.use_remove_padding"] is False


def test_with_flash_attention_verls_own_choice_stays() -> None:
    found = settings_of(trial(), gpu_engine(FULL))
    assert not any("remove_padding" in k or "attn_implementation" in k for k in found)


def test_what_a_gpu_machine_lacks_is_said() -> None:
    assert notices(FULL) == ()
    assert [n.split()[0] for n in notices(BARE)] == ["flash-attn", "FlashInfer's"]


@pytest.mark.parametrize(
    ("torch", "kept"), [("2.9.1", False), ("2.10.0", True), ("2.11.0+cu130", True), ("2.13.0", True), ("3.0", True)]
)
def test_the_compile_cache_is_kept_from_the_torch_on_that_writes_it_atomically(torch: str, kept: bool) -> None:
    variables = gpu_engine(Machine(versions=(("torch", torch),))).variables
    assert (variables.get("VLLM_DISABLE_COMPILE_CACHE") == "0") is kept


def test_flashinfers_sampler_is_turned_off_only_where_it_cannot_be_compiled() -> None:
    assert gpu_engine(BARE).variables["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in gpu_engine(FULL).variables


@pytest.mark.parametrize(
    ("path", "offline"), [("/models/x", True), ("./x", True), ("~/x", True), ("Qwen/Qwen2.5-0.5B", False), ("", False)]
)
def test_the_hub_is_left_alone_for_a_local_model(path: str, offline: bool) -> None:
    assert bool(offline_variables(path)) is offline


@pytest.mark.parametrize(
    ("engine", "gpus", "extra", "cpus"),
    [
        (cpu_engine(), 1, {}, 5),
        (gpu_engine(BARE), 1, {}, 10),
        (gpu_engine(BARE, 1, 2), 2, {}, 10),
        (gpu_engine(BARE, 1, 8), 8, {}, 33),
        (cpu_engine(), 1, {"transfer_queue.backend.SimpleStorage.num_data_storage_units": 4}, 8),
    ],
)
def test_the_cpus_that_verl_reserves_are_known_before_it_waits_for_them(
    engine: EngineSettings, gpus: int, extra: dict[str, object], cpus: int
) -> None:
    one = trial(**{"trainer.n_gpus_per_node": gpus, **extra})
    assert (gpus_of(one), cpus_of(one, engine)) == (gpus, cpus)


def test_verl_is_started_by_its_own_entry_point_and_leaves_no_outputs_folder() -> None:
    arguments = launch_arguments(Overrides.of({"a": "it's"}), {"X": "1"})
    assert arguments[:3] == ("-m", "verl.trainer.main_ppo", "a='it\\'s'")
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.X='1'" in arguments
    assert "hydra.output_subdir=null" in arguments


def test_two_trials_differ_only_where_they_should() -> None:
    one, other = trial(seed=1), trial(seed=1, **{"actor_rollout_ref.actor.optim.lr": 1e-5})
    changed = complete(one, "/r/1", cpu_engine(), True).difference(complete(other, "/r/1", cpu_engine(), True))
    assert changed == ("actor_rollout_ref.actor.optim.lr", "trainer.experiment_name")


def test_a_folder_with_spaces_and_quotes_reaches_verl_intact() -> None:
    folder = Path("/runs/my 'campaign', {1}")
    lines = complete(trial(), str(folder), cpu_engine(), True).command_line()
    assert compose(lines).config["trainer.default_local_dir"] == f"{folder}/checkpoints"


def test_this_machine_is_inspected_without_importing_what_it_has() -> None:
    script = (
        "import sys; from sweep.engines.verl.environment import inspect; found = inspect();"
        "print(found.version('verl'), found.version('no-such-package'), {'verl', 'torch', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0.9.1", "None", "set()"], done.stderr
