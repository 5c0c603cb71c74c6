"""`rollout_spec`: everything that a process needs to generate as the rollout of one verl configuration would.

Pure: verl's composed configuration by dotted key in, plain JSON types out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sweep.core import verl_keys as keys
from sweep.errors import ConfigError

ROLLOUT = "actor_rollout_ref.rollout."
MODEL = "actor_rollout_ref.model."
ENGINE_OPTIONS = ROLLOUT + "engine_kwargs.vllm."
TEMPLATE_OPTIONS = "data.apply_chat_template_kwargs."
WORKER_EXTENSION = "sweep.engines.vllm.worker_memory.WorkerMemory"

ENGINE_DEFAULTS: dict[str, object] = {
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 256,
    "gpu_memory_utilization": 0.5,
    "max_model_len": None,
    "dtype": "bfloat16",
    "enforce_eager": False,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "enable_sleep_mode": True,
    "logprobs_mode": "processed_logprobs",
    "scheduling_policy": "fcfs",
    "seed": 42,
}
"""vLLM's arguments that verl takes from its rollout by the same name, with verl's defaults.

Source: verl 0.9.1 workers/rollout/vllm_rollout/vllm_async_server.py, trainer/config/rollout/rollout.yaml.
"""

CUDA_GRAPHS = "FULL_AND_PIECEWISE"
"""Source: as above; verl sets it where nothing else is asked for."""


def rollout_spec(config: Mapping[str, object], gpus: int) -> dict[str, Any]:
    """The specification of one of the replicas that the training has on its GPUs, with its share of the batch.

    In the training `replicas` of them work side by side: its rate is theirs together.

    Raises:
        ConfigError: if the rollout is none that one vLLM can stand in for.
    """
    tensor, pipeline = (int(_rollout(config, f"{kind}_model_parallel_size", 1)) for kind in ("tensor", "pipeline"))
    if _rollout(config, "data_parallel_size", 1) != 1:
        raise ConfigError(
            "measure: rollout cannot stand in for rollout.data_parallel_size over 1; set measure: training"
        )
    if gpus % (tensor * pipeline):
        raise ConfigError(
            f"a rollout replica takes {tensor * pipeline} GPUs, which do not divide the training's {gpus}; "
            f"set {keys.TENSOR_PARALLEL} to a number that does"
        )
    replicas = gpus // (tensor * pipeline)
    prompts, samples = (
        int(_of(config, keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH])),
        int(_rollout(config, "n", 1)),
    )
    return {
        "engine": {**_engine(config), "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline},
        "gpus": tensor * pipeline,
        "replicas": replicas,
        "sequences": math.ceil(prompts * samples / replicas),
        "samples": samples,
        "prompts": _prompts(config, prompts),
        "sampling": _sampling(config),
        "prompt_tokens": int(_rollout(config, "prompt_length", 512)),
        "response_tokens": int(_rollout(config, "response_length", 512)),
    }


def same_process(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether the vLLM started for the first can generate for the second: at most their seeds differ."""

    def seedless(spec: Mapping[str, Any]) -> dict[str, Any]:
        return {**spec, "engine": {**spec["engine"], "seed": None}}

    return seedless(first) == seedless(second)


def _engine(config: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of `vllm.LLM`. Weights are the model's own, where verl fills in the actor's after the start."""
    graphs: dict[str, object] = {"cudagraph_mode": CUDA_GRAPHS}
    if sizes := _rollout(config, "cudagraph_capture_sizes", None):
        graphs["cudagraph_capture_sizes"] = sizes
    return {
        "model": config[MODEL + "path"],
        "trust_remote_code": bool(_of(config, MODEL + "trust_remote_code", False)),
        **{name: _rollout(config, name, default) for name, default in ENGINE_DEFAULTS.items()},
        "distributed_executor_backend": "mp",
        "compilation_config": graphs,
        **{name: value for name, value in _under(config, ENGINE_OPTIONS).items() if value is not None},
        "load_format": "auto",
        "disable_log_stats": False,  # the count of preemptions is one of them
        "worker_extension_cls": WORKER_EXTENSION,
    }


def _sampling(config: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of `vllm.SamplingParams`. Source: verl 0.9.1 experimental/agent_loop/agent_loop.py."""
    return {
        "temperature": float(_rollout(config, "temperature", 1.0)),
        "top_p": float(_rollout(config, "top_p", 1.0)),
        "top_k": int(_rollout(config, "top_k", -1)),
        "ignore_eos": bool(_rollout(config, "ignore_eos", False)),
        "logprobs": 0 if _rollout(config, "calculate_log_probs", True) else None,
    }


def _prompts(config: Mapping[str, object], count: int) -> dict[str, Any]:
    """Fields of `TrainingPrompts`."""
    files = config["data.train_files"]
    filtered = bool(_of(config, "data.filter_overlong_prompts", False))
    return {
        "files": [str(one) for one in files] if isinstance(files, list | tuple) else [str(files)],
        "count": count,
        "key": str(_of(config, "data.prompt_key", "prompt")),
        "most_tokens": int(_of(config, "data.max_prompt_length", 512)) if filtered else None,
        "template": _of(config, MODEL + "custom_chat_template", None),
        "template_options": _under(config, TEMPLATE_OPTIONS),
    }


def _rollout(config: Mapping[str, object], name: str, default: object) -> Any:
    return _of(config, ROLLOUT + name, default)


def _of(config: Mapping[str, object], key: str, default: object) -> Any:
    return config.get(key, default)


def _under(config: Mapping[str, object], prefix: str) -> dict[str, object]:
    """The settings below the prefix, nested as they were."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key.startswith(prefix):
            *sections, last = key.removeprefix(prefix).split(".")
            inner = found
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = value
    return found
