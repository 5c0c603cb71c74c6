"""`python -m sweep.preflight` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sweep.preflight import main

FINE = [
    "actor_rollout_ref.rollout.name=vllm",
    "trainer.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "critic.ppo_micro_batch_size_per_gpu=4",
    "trainer.logger=[console]",
]


def test_a_sound_configuration_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "--no-verl"]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def test_an_error_exits_with_2_and_names_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "data.train_batch_size=64", "--no-verl"]) == 2
    said = capsys.readouterr().out
    assert "TRAIN_LT_MINI" in said and "try: data.train_batch_size=256" in said


def test_options_may_stand_between_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "--no-verl", "--cpus", "8", "trainer.nnodes=1", "--quiet"]) == 2
    assert "CPUS_SHORT" in capsys.readouterr().out


def test_json_holds_verdict_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    main([*FINE, "algorithm.kl_ctrl.kl_coef=0.002", "--json", "--no-verl"])
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "error"
    assert said["findings"][0]["code"] == "KL_COEF_WITHOUT_KL"


def test_a_swept_key_that_is_dead_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "--no-verl", "--swept", "actor_rollout_ref.actor.grad_clip"]) == 2
    assert "DEAD_KEY" in capsys.readouterr().out


def test_runs_of_several_values_are_checked_each_and_share_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    several = ["algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.kl_coef=0.0005,0.02"]
    several += ["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8"]
    assert main([*FINE, "--no-verl", *several]) == 2
    said = capsys.readouterr().out
    assert "SHARED_CHECKPOINT_DIR: trials algorithm.kl_ctrl.kl_coef=0.0005, algorithm" in said
    assert "KL_COEF_OUTSIDE_SAFE_RANGE: algorithm.kl_ctrl.kl_coef 0.02" in said
    own = "trainer.default_local_dir=runs/${algorithm.kl_ctrl.kl_coef}"
    assert main([*FINE, "--no-verl", *several, own]) == 0


def test_rows_that_the_filter_leaves_may_be_told(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    rows = tmp_path / "t.jsonl"
    rows.write_text('{"prompt": "p", "data_source": "openai/gsm8k", "reward_model": {}}\n' * 2048)
    asked = [*FINE, f"data.train_files={rows}", "data.filter_overlong_prompts=true", "--no-verl"]
    main(asked)
    assert "EMPTY_DATALOADER" not in capsys.readouterr().out
    assert main([*asked, "--rows-after-filter", "200"]) == 2
    assert "the training data has 200 rows after its filter" in capsys.readouterr().out


def test_steps_that_the_epochs_do_not_reach_are_found(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    rows = tmp_path / "t.jsonl"
    rows.write_text('{"prompt": "p", "data_source": "openai/gsm8k", "reward_model": {}}\n' * 2048)
    assert main([*FINE, f"data.train_files={rows}", "--steps", "500", "--no-verl"]) == 2
    assert "trainer.total_epochs=250" in capsys.readouterr().out


def test_remarks_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    main([*FINE, "--no-verl", "--quiet"])
    assert "INFO" not in capsys.readouterr().out


def test_limits_come_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    utilization = "actor_rollout_ref.rollout.gpu_memory_utilization=0.6"
    assert main([*FINE, utilization, "--no-verl"]) == 0
    assert "UTILIZATION_HIGH" not in capsys.readouterr().out
    asked = ["--limit", "gpu_memory_utilization=0.5", "--limit", "log_prob_micro_batch=4"]
    assert main([*FINE, *asked, utilization, "--no-verl"]) == 0
    said = capsys.readouterr().out
    assert "above 0.5 the engine" in said and "above 4 padding costs" in said


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("no_such=1", "--limit: unknown key no_such; known: critic_tokens_ratio, filter_rows_ratio, "),
        ("lr_high", "--limit wants NAME=VALUE, got lr_high"),
        ("lr_high=fast", "--limit lr_high must be a number, got 'fast'"),
        ("lr_high=nan", "--limit lr_high must be a number, got nan"),
        ("ulysses_size=2.5", "--limit ulysses_size must be a whole number, got 2.5"),
        ("full_share=2", "--limit full_share must be above 0 and at most 1, got 2"),
        ("lr_high=1e-7", "lr_low must be below lr_high, got 5e-07 and 1e-07; the method's are 5e-07 and 5e-06"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(limit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "--no-verl", "--limit", limit]) == 2
    assert said in capsys.readouterr().err


def test_text_that_is_no_override_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trainer.nnodes=[1", "--no-verl"]) == 2
    assert "grammar" in capsys.readouterr().err


def test_help_answers_without_loading_anything_heavy() -> None:
    code = (
        "import sys; sys.argv = ['preflight', '--help']\n"
        "try:\n    import runpy; runpy.run_module('sweep.preflight', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'hydra', 'verl', 'torch', 'ray', 'omegaconf'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip().endswith("[]")


@pytest.mark.slow
@pytest.mark.verl
def test_verls_own_objections_stand_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FINE, "actor_rollout_ref.actor.loss_agg_mode=sum-of-all"]) == 2
    assert "VERL_REFUSES" in capsys.readouterr().out


def test_a_text_for_a_number_is_named_with_verls_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-verl", "data.train_batch_size=512k"]) == 2
    said = capsys.readouterr().out
    assert "VALUE_TYPE: data.train_batch_size is '512k', and verl's default is 1024" in said


@pytest.mark.parametrize("option", ["--gpus=0", "--gpus=-3", "--gpu-gib=nan", "--gpu-gib=-1", "--steps=0", "--cpus=x"])
def test_a_machine_that_cannot_be_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--no-verl", option])
    assert refused.value.code == 2
    assert option.partition("=")[0] in capsys.readouterr().err
