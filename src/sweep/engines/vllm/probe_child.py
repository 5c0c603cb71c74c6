"""`python -m sweep.engines.vllm.probe_child SPEC RESULT`: measures one point with vLLM in this process.

SPEC and RESULT are JSON files; RESULT exists only if the measurement came to its end. Started by
`sweep.engines.vllm.probe`, which reads what went wrong from the console otherwise.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.engines.vllm.rollout_child import preemptions
from sweep.engines.vllm.rollout_spec import WORKER_EXTENSION
from sweep.engines.vllm.workload import Workload


def main(spec_path: str, result_path: str) -> None:
    """The result of the spec is in its file, whole or not at all, before vLLM is ended."""
    from vllm import LLM

    spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
    began = time.perf_counter()
    llm = LLM(**engine_arguments(spec))
    result = {"init_seconds": time.perf_counter() - began, **measure(llm, spec)}
    partial = Path(result_path + ".part")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(result_path)
    llm.llm_engine.engine_core.shutdown()


def measure(llm: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds of the workload, each with prompts of its own, and what they did to memory and cache."""
    cache = llm.llm_engine.vllm_config.cache_config
    workload = Workload(**spec["workload"])
    vocabulary = llm.model_config.get_vocab_size()
    rounds, memory = [], []
    for number in range(spec["warmup_rounds"] + spec["rounds"]):
        if number == spec["warmup_rounds"]:
            preempted = preemptions(llm)
        rounds.append(_round(llm, workload, spec["seed"] + number, vocabulary, spec["log_probs"]))
        print(f"probe: round {number}: {rounds[-1]['tokens'] / rounds[-1]['seconds']:.0f} token/s", flush=True)
        memory += llm.collective_rpc("sweep_memory")
    return {
        "rounds": rounds[spec["warmup_rounds"] :],
        "preemptions": preemptions(llm) - preempted,
        "kv_cache_tokens": _cache_tokens(cache),
        "peak_allocated_gib": _extreme(max, memory, "peak_allocated_gib"),
        "peak_reserved_gib": _extreme(max, memory, "peak_reserved_gib"),
        "free_gib": _extreme(min, memory, "free_gib"),
        "total_gib": _extreme(min, memory, "total_gib"),
        "vllm": _version(),
    }


def engine_arguments(spec: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's arguments as verl's rollout gives them, as far as they bear on speed and memory.

    Source: verl 0.9.1 workers/rollout/vllm_rollout/vllm_async_server.py and trainer/config/rollout/rollout.yaml.
    """
    return {
        "model": spec["model"],
        "max_num_batched_tokens": spec["max_num_batched_tokens"],
        "max_num_seqs": spec["max_num_seqs"],
        "gpu_memory_utilization": spec["gpu_memory_utilization"],
        "tensor_parallel_size": spec["tensor_parallel_size"],
        "max_model_len": spec["max_model_len"],
        "dtype": spec["dtype"],
        "load_format": spec["load_format"],
        "enforce_eager": spec["enforce_eager"],
        "seed": spec["seed"],
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": False,  # the count of preemptions is one of them
        "worker_extension_cls": WORKER_EXTENSION,
    }


def _round(llm: Any, workload: Workload, seed: int, vocabulary: int, log_probs: bool) -> dict[str, float]:
    """Seconds from handing out all prompts to having all responses, and the tokens that were generated."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in workload.prompt_ids(seed, vocabulary)]
    sampling = [
        SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, logprobs=0 if log_probs else None)
        for length in workload.response_lengths(seed)
    ]
    began = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "tokens": sum(len(output.outputs[0].token_ids) for output in outputs)}


def _cache_tokens(cache: Any) -> int:
    """Tokens that the key-value cache holds; models of mixed attention report it themselves."""
    known = getattr(cache, "kv_cache_size_tokens", None)
    return int(known or (cache.num_gpu_blocks or 0) * cache.block_size)


def _extreme(choose: Any, memory: list[dict[str, float]], name: str) -> float | None:
    values = [one[name] for one in memory if name in one]
    return choose(values) if values else None


def _version() -> str:
    import vllm

    return str(vllm.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:3])
