"""`Batcher`: continuous batching of generation requests within two limits, on any transformers causal model.

One iteration gives every running sequence its next token and reads the prompts of newly admitted ones. At most
`max_num_seqs` sequences run, and at most `max_num_batched_tokens` tokens are computed in an iteration: one for each
running sequence, and the prompts' own. These are vLLM's two limits, with its meaning of them. No Ray, no verl here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch
from torch import nn

from sweep.engines.verl.plugins.key_values import KeyValues
from sweep.engines.verl.plugins.sampling import Sampling, log_probabilities, pick, uniforms


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and what has been generated for it so far."""

    prompt: list[int]
    max_tokens: int
    seed: int
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    draws: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.draws = uniforms(self.seed, self.max_tokens)


@dataclass(slots=True)
class Counts:
    """What the batcher has done since it was last asked."""

    iterations: int = 0
    generated_tokens: int = 0
    prompt_tokens: int = 0
    most_running: int = 0
    most_tokens: int = 0


class Batcher:
    """Requests wait in order of arrival, run together and leave as soon as they are complete."""

    def __init__(
        self,
        model: nn.Module,
        ends: frozenset[int],
        vocabulary: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        self.model = model
        self.ends = ends
        self.vocabulary = vocabulary
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.waiting: deque[Request] = deque()
        self.counts = Counts()
        self._running: list[Request] = []
        self._cache: KeyValues | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self.waiting and not self._running

    def take_counts(self) -> Counts:
        """The counts since the last call, which starts them anew."""
        counts, self.counts = self.counts, Counts()
        return counts

    def step(self) -> list[Request]:
        """One iteration; returns the requests that it completed."""
        admitted = self._admit()
        scheduled = len(self._running) + sum(len(r.prompt) for r in admitted)
        with torch.inference_mode():
            if self._running:
                self._decode()
            if admitted:
                self._read_prompts(admitted)
        self.counts.iterations += 1
        self.counts.most_running = max(self.counts.most_running, len(self._running))
        self.counts.most_tokens = max(self.counts.most_tokens, min(scheduled, self.max_num_batched_tokens))
        return self._release()

    def _admit(self) -> list[Request]:
        places = min(self.max_num_seqs, self.max_num_batched_tokens) - len(self._running)
        budget = self.max_num_batched_tokens - len(self._running)
        admitted: list[Request] = []
        while self.waiting and len(admitted) < places and len(self.waiting[0].prompt) <= budget:
            admitted.append(self.waiting.popleft())
            budget -= len(admitted[-1].prompt)
        if not admitted and not self._running and self.waiting:
            admitted.append(self.waiting.popleft())  # a prompt over the whole budget: alone, in pieces
        return admitted

    def _decode(self) -> None:
        assert self._cache is not None
        last = torch.tensor([[r.tokens[-1]] for r in self._running])
        self._append(self._running, self._cache.extend(self.model, last))

    def _read_prompts(self, admitted: list[Request]) -> None:
        cache, width = KeyValues(), max(len(r.prompt) for r in admitted)
        ids = torch.tensor([[0] * (width - len(r.prompt)) + r.prompt for r in admitted])
        real = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in admitted])
        pieces = range(0, width, self.max_num_batched_tokens) if len(admitted) == 1 else (0,)
        size = self.max_num_batched_tokens if len(admitted) == 1 else width
        for start in pieces:
            logits = cache.extend(self.model, ids[:, start : start + size], real[:, start : start + size])
        self.counts.iterations += len(pieces) - 1
        self.counts.prompt_tokens += sum(len(r.prompt) for r in admitted)
        self._append(admitted, logits)
        self._cache = cache if self._cache is None else self._cache.joined(cache)
        self._running += admitted

    def _append(self, requests: list[Request], logits: torch.Tensor) -> None:
        settings = [r.sampling for r in requests]
        log_probs = log_probabilities(logits[:, : self.vocabulary], settings)
        draws = torch.stack([r.draws[len(r.tokens)] for r in requests])
        chosen = pick(log_probs, settings, draws)
        chances = log_probs.gather(-1, chosen[:, None]).squeeze(-1)
        for request, token, chance in zip(requests, chosen.tolist(), chances.tolist(), strict=True):
            request.tokens.append(token)
            request.log_probs.append(chance)
        self.counts.generated_tokens += len(requests)

    def _release(self) -> list[Request]:
        done = [self._complete(r) for r in self._running]
        if not any(done):
            return []
        completed = [r for r, complete in zip(self._running, done, strict=True) if complete]
        kept = [row for row, complete in enumerate(done) if not complete]
        self._running = [self._running[row] for row in kept]
        self._cache = self._cache.rows(kept) if kept and self._cache is not None else None
        return completed

    def _complete(self, request: Request) -> bool:
        return len(request.tokens) >= request.max_tokens or request.tokens[-1] in self.ends
