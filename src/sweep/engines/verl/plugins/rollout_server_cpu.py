"""The rollout server of the CPU: a transformers model in a Ray actor that batches requests as vLLM does.

Imports nothing of verl, whose import would be most of this process's start.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from sweep.engines.verl.plugins.batching import Batcher, Request
from sweep.engines.verl.plugins.fingerprint import Fingerprint, fingerprints
from sweep.engines.verl.plugins.sampling import UNLIMITED, Sampling, request_seed


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the server reads of `actor_rollout_ref.rollout`, by verl's names."""

    seed: int
    prompt_length: int
    response_length: int
    max_num_seqs: int
    max_num_batched_tokens: int
    ignore_eos: bool
    free_cache_engine: bool


@dataclass(slots=True)
class Response:
    """What verl reads of a response. Source: verl workers/rollout/replica.py, `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None
    extra_fields: dict[str, Any] = field(default_factory=dict)
    stop_reason: str = "completed"
    routed_experts: None = None
    num_preempted: None = None


class CpuRolloutServer:
    """Generates for the agent loops, one batch at a time, while it is awake; weights come from the trainer."""

    def __init__(self, settings: ServerSettings, model_path: str) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        self.settings = settings
        hf_config = AutoConfig.from_pretrained(model_path, attn_implementation="sdpa")
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="sdpa").float().eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        ends = frozenset() if settings.ignore_eos else _ends(hf_config, tokenizer)
        self.batcher = Batcher(model, ends, len(tokenizer), settings.max_num_seqs, settings.max_num_batched_tokens)
        self.seed = settings.seed
        self.version: int | None = None
        self._futures: dict[int, asyncio.Future[Request]] = {}
        self._awake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._busy_seconds = 0.0

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **unused: Any
    ) -> Response:
        """The response to one prompt; keyword arguments for images and the like are verl's and stay unused."""
        version = self.version
        request = self._request([int(t) for t in prompt_ids], sampling_params, request_id)
        future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._futures[id(request)] = future
        self.batcher.waiting.append(request)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        await future
        return Response(
            token_ids=request.tokens,
            log_probs=request.log_probs if sampling_params.get("logprobs") else None,
            extra_fields={"global_steps": version},
        )

    def _request(self, prompt: list[int], params: dict[str, Any], request_id: str) -> Request:
        # vLLM's default: the response may be as long as configured, the two together no longer than both limits.
        room = self.settings.prompt_length + self.settings.response_length - len(prompt)
        max_tokens = int(params.get("max_tokens") or min(self.settings.response_length, room))
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
        state = {name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()}
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

    def weights_fingerprint(self) -> dict[str, Fingerprint]:
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
        if self.settings.free_cache_engine:
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
