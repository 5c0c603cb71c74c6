"""What vLLM alone is told, from verl's own composed configuration."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.engines.verl.compose import compose
from sweep.engines.vllm.rollout_spec import ENGINE_DEFAULTS, rollout_spec, same_process
from sweep.errors import ConfigError

ROLLOUT = "actor_rollout_ref.rollout."
MODEL = {"actor_rollout_ref.model.path": "M", "data.train_files": "/d/train.parquet", f"{ROLLOUT}name": "vllm"}
ONE_GPU = {keys.TENSOR_PARALLEL: 1}


def spec(gpus: int = 1, **settings: object):
    composed = compose(Overrides.of({**MODEL, **ONE_GPU, **settings}))
    assert not composed.unknown
    return rollout_spec(composed.config, gpus)


def test_the_engine_is_set_up_as_verl_sets_up_its_rollout_but_with_the_models_own_weights():
    found = spec(
        **{
            keys.MAX_BATCHED_TOKENS: 4096,
            keys.MAX_SEQS: 128,
            keys.MEMORY_UTILIZATION: 0.4,
            f"{ROLLOUT}enforce_eager": True,
            f"{ROLLOUT}max_model_len": 640,
            f"+{ROLLOUT}engine_kwargs.vllm.block_size": 32,
            f"+{ROLLOUT}engine_kwargs.vllm.worker_extension_cls": "x.Y",
        }
    )["engine"]
    assert (found["max_num_batched_tokens"], found["max_num_seqs"], found["gpu_memory_utilization"]) == (4096, 128, 0.4)
    assert (found["enforce_eager"], found["max_model_len"], found["block_size"]) == (True, 640, 32)
    assert (found["model"], found["load_format"], found["disable_log_stats"]) == ("M", "auto", False)
    assert found["worker_extension_cls"].endswith("WorkerMemory")
    assert found["compilation_config"] == {"cudagraph_mode": "FULL_AND_PIECEWISE"}


def test_the_defaults_are_verls_own():
    composed = compose(Overrides.of(MODEL)).config
    known = {name for name in ENGINE_DEFAULTS if ROLLOUT + name in composed}
    assert set(ENGINE_DEFAULTS) - known == {"enable_sleep_mode"}  # a field of verl's rollout, in none of its files
    assert {name: composed[ROLLOUT + name] for name in known} == {name: ENGINE_DEFAULTS[name] for name in known}


def test_the_work_is_the_trainings():
    found = spec(
        **{
            keys.TRAIN_BATCH: 48,
            keys.ROLLOUT_N: 3,
            "data.max_prompt_length": 40,
            "data.max_response_length": 100,
            f"{ROLLOUT}temperature": 0.7,
            f"{ROLLOUT}top_p": 0.9,
            "data.filter_overlong_prompts": True,
            "+data.apply_chat_template_kwargs.enable_thinking": False,
            "+data.apply_chat_template_kwargs.a.b": 1,
        }
    )
    assert (found["sequences"], found["samples"]) == (144, 3)
    assert (found["prompt_tokens"], found["response_tokens"]) == (40, 100)
    assert found["sampling"] == {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "ignore_eos": False, "logprobs": 0}
    assert found["prompts"] == {
        "files": ["/d/train.parquet"],
        "count": 48,
        "key": "prompt",
        "most_tokens": 40,
        "template": None,
        "template_options": {"enable_thinking": False, "a": {"b": 1}},
    }
    assert spec(**{f"{ROLLOUT}calculate_log_probs": False})["sampling"]["logprobs"] is None
    assert spec()["prompts"]["most_tokens"] is None  # verl leaves no prompt out by itself
    assert spec(**{"data.train_files": ["/a", "/b"]})["prompts"]["files"] == ["/a", "/b"]


@pytest.mark.parametrize(
    ("gpus", "tensor", "replicas", "sequences"), [(1, 1, 1, 10), (2, 2, 1, 10), (4, 1, 4, 3), (8, 2, 4, 3)]
)
def test_one_replica_gets_its_share_of_the_batch(gpus: int, tensor: int, replicas: int, sequences: int):
    found = spec(gpus, **{keys.TRAIN_BATCH: 10, keys.TENSOR_PARALLEL: tensor})
    assert (found["gpus"], found["replicas"], found["sequences"]) == (tensor, replicas, sequences)


def test_what_one_vllm_cannot_stand_in_for_is_refused():
    with pytest.raises(ConfigError, match="takes 2 GPUs, which do not divide the training's 3"):
        spec(3, **{keys.TENSOR_PARALLEL: 2})
    with pytest.raises(ConfigError, match="data_parallel_size"):
        spec(2, **{f"{ROLLOUT}data_parallel_size": 2})


def test_only_a_seed_may_differ_between_trials_of_one_process():
    assert same_process(spec(), spec(**{f"{ROLLOUT}seed": 7}))
    assert same_process(spec(), spec(**{keys.ACTOR_LR: 1e-5}))  # nothing of the rollout
    for key, value in ((keys.MAX_SEQS, 128), (keys.MEMORY_UTILIZATION, 0.6), (keys.TRAIN_BATCH, 2)):
        assert not same_process(spec(), spec(**{key: value}))
