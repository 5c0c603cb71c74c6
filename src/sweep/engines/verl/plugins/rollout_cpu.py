"""Rollouts on the CPU: a transformers model in a Ray actor that batches requests as vLLM does.

Three parts that verl expects of a rollout engine: the server, the replica that starts it, and the adapter in each
training worker that pushes new weights to it. One rank, one replica, one server.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from sweep.engines.verl.plugins.batching import Batcher, Request
from sweep.engines.verl.plugins.fingerprint import fingerprints
from sweep.engines.verl.plugins.rollout_cpu_names import NAME
from sweep.engines.verl.plugins.sampling import UNLIMITED, Sampling, request_seed


class CpuRolloutServer:
    """Generates for the agent loops, one batch at a time, while it is awake; weights come from the trainer."""

    def __init__(self, config: Any, model_path: str) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        self.config = config
        hf_config = AutoConfig.from_pretrained(model_path, attn_implementation="sdpa")
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="sdpa").float().eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        ends = frozenset() if config.ignore_eos else _ends(hf_config, tokenizer)
        self.batcher = Batcher(
            model, ends, len(tokenizer), int(config.max_num_seqs), int(config.max_num_batched_tokens)
        )
        self.seed = int(config.seed)
        self.version: int | None = None
        self._futures: dict[int, asyncio.Future[Request]] = {}
        self._awake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._busy_seconds = 0.0

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **unused: Any
    ) -> TokenOutput:
        """The response to one prompt; keyword arguments for images and the like are verl's and stay unused."""
        version = self.version
        request = self._request([int(t) for t in prompt_ids], sampling_params, request_id)
        future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._futures[id(request)] = future
        self.batcher.waiting.append(request)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        await future
        return TokenOutput(
            token_ids=request.tokens,
            log_probs=request.log_probs if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields={"global_steps": version},
        )

    def _request(self, prompt: list[int], params: dict[str, Any], request_id: str) -> Request:
        # vLLM's default: the response may be as long as configured, the two together no longer than both limits.
        room = self.config.prompt_length + self.config.response_length - len(prompt)
        max_tokens = int(params.get("max_tokens") or min(self.config.response_length, room))
        sampling = Sampling(
            float(params.get("temperature", 1.0)), int(params.get("top_k", UNLIMITED)), float(params.get("top_p", 1.0))
        )
        seed = request_seed(self.seed, self.version, prompt, params.get("sample", request_id))
        return Request(prompt, max(1, max_tokens), seed, sampling)

    async def _serve(self) -> None:
        while not self.batcher.idle:
            await self._awake.wait()
            started = time.perf_counter()
            try:
                completed = self.batcher.step()
            except Exception as error:
                self._fail(error)
                return
            self._busy_seconds += time.perf_counter() - started
            for request in completed:
                self._futures.pop(id(request)).set_result(request)
            await asyncio.sleep(0)  # let new requests in

    def _fail(self, error: Exception) -> None:
        futures, self._futures = self._futures, {}
        self.batcher = Batcher(
            self.batcher.model,
            self.batcher.ends,
            self.batcher.vocabulary,
            self.batcher.max_num_seqs,
            self.batcher.max_num_batched_tokens,
        )
        for future in futures.values():
            future.set_exception(error)

    async def load_weights(self, weights: dict[str, Any]) -> None:
        """The next request is answered with these weights; a missing or unknown name is refused."""
        state = {name: torch.as_tensor(value).float() for name, value in weights.items()}
        missing, unknown = self.batcher.model.load_state_dict(state, strict=False)
        tied = set(getattr(self.batcher.model, "_tied_weights_keys", None) or ())
        if unknown or set(missing) - tied:
            raise ValueError(f"weights do not fit the model: missing {missing}, unknown {unknown}")

    async def start_trial(self, seed: int, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        """The server is as if newly started with these settings, but for its weights."""
        self.seed = seed
        self.batcher.max_num_seqs, self.batcher.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.take_stats()

    def take_stats(self) -> dict[str, float]:
        """What was done since the last call, and the seconds spent on it."""
        stats = {**asdict(self.batcher.take_counts()), "busy_seconds": self._busy_seconds}
        self._busy_seconds = 0.0
        return stats

    def weights_fingerprint(self) -> dict[str, tuple[int, int]]:
        """Name to fingerprint of every weight that is being served."""
        return fingerprints(self.batcher.model.state_dict().items())

    async def set_global_steps(self, global_steps: int) -> None:
        """The version of the weights, which becomes part of the seed of every request."""
        self.version = global_steps

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Requests are served again; the wake-up that only prepares for new weights (`weights`) does not count."""
        if tags is None or "kv_cache" in tags:
            self._awake.set()

    async def sleep(self) -> None:
        """Requests wait until the next wake-up, unless the configuration keeps the rollout awake."""
        if self.config.free_cache_engine:
            self._awake.clear()

    async def clear_kv_cache(self) -> None:
        """Nothing is kept between requests."""

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Running requests end by themselves; the synchronous trainer waits for them."""
        return {}

    async def resume_generation(self) -> None:
        """Never interrupted."""

    async def start_profile(self, **options: Any) -> None:
        """No profiler."""

    async def stop_profile(self) -> None:
        """No profiler."""


def _ends(hf_config: Any, tokenizer: Any) -> frozenset[int]:
    ids = hf_config.eos_token_id if hf_config.eos_token_id is not None else tokenizer.eos_token_id
    return frozenset(ids if isinstance(ids, list | tuple) else [ids])


class CpuReplica(RolloutReplica):  # type: ignore[misc]
    """Starts the server of one rank."""

    async def launch_servers(self) -> None:
        from verl.utils.fs import copy_to_local

        server = (
            ray.remote(CpuRolloutServer)
            .options(name=server_name(self.replica_rank), max_concurrency=self.max_concurrency, num_cpus=0)
            .remote(self.config, copy_to_local(self.model_config.path))
        )
        await server.wake_up.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)


class CpuServerAdapter(BaseRollout):  # type: ignore[misc]
    """In a training worker: the way to the server of its rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        if self.config.tensor_model_parallel_size != 1:
            raise ValueError(
                f"rollout {NAME} runs on one rank, got tensor_model_parallel_size "
                f"{self.config.tensor_model_parallel_size}; set it to 1"
            )
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True
        self._server: Any = None

    @property
    def server(self) -> Any:
        """The server's handle; it is started after this worker, so it is looked up when first needed."""
        if self._server is None:
            self._server = ray.get_actor(server_name(self.replica_rank))
        return self._server

    async def resume(self, tags: list[str]) -> None:
        await self.server.wake_up.remote(tags)

    async def release(self) -> None:
        await self.server.sleep.remote()

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **unused: Any
    ) -> None:
        state = {name: tensor.detach().cpu().float().numpy() for name, tensor in weights}
        await self.server.load_weights.remote(state)
        if global_steps is not None:
            await self.server.set_global_steps.remote(global_steps)


def server_name(replica_rank: int) -> str:
    """The Ray name of a replica's server, unique in the trial's job."""
    return f"{NAME}_server_{replica_rank}_0"
