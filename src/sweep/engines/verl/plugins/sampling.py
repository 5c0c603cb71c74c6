"""Next tokens from logits: temperature, top-k, top-p, and one uniform number a token.

Each request owns a stream of uniform numbers, drawn from a generator seeded by what the request is. So its tokens
depend neither on when it arrives nor on what else is in the batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request picks its tokens; temperature 0 takes the likeliest."""

    temperature: float = 1.0
    top_k: int = UNLIMITED
    top_p: float = 1.0


def request_seed(*parts: object) -> int:
    """63 bits that are equal for equal parts and unrelated for different ones."""
    digest = hashlib.sha256("\x1f".join(repr(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def uniforms(seed: int, count: int) -> torch.Tensor:
    """`count` numbers in [0, 1), float64, always the same for one seed."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def log_probabilities(logits: torch.Tensor, settings: list[Sampling]) -> torch.Tensor:
    """Row by row the log-probabilities that tokens are drawn from, shape (rows, vocabulary), float64.

    Greedy rows keep the unscaled distribution: what is reported for their token is the model's own probability.
    """
    scale = torch.tensor([s.temperature if s.temperature > 0 else 1.0 for s in settings], dtype=torch.float64)
    scaled = logits.double() / scale[:, None]
    if any(s.top_k > 0 for s in settings):
        scaled = _keep_top_k(scaled, settings)
    if any(s.top_p < 1 for s in settings):
        scaled = _keep_top_p(scaled, settings)
    return scaled.log_softmax(-1)


def _keep_top_k(logits: torch.Tensor, settings: list[Sampling]) -> torch.Tensor:
    size = logits.shape[-1]
    ranks = torch.tensor([min(s.top_k, size) if s.top_k > 0 else size for s in settings]) - 1
    thresholds = logits.sort(-1, descending=True).values.gather(-1, ranks[:, None])
    return logits.masked_fill(logits < thresholds, -torch.inf)


def _keep_top_p(logits: torch.Tensor, settings: list[Sampling]) -> torch.Tensor:
    ordered, order = logits.sort(-1, descending=True)
    weights = ordered.softmax(-1)
    limits = torch.tensor([s.top_p for s in settings], dtype=torch.float64)
    beyond = weights.cumsum(-1) - weights >= limits[:, None]
    beyond[:, 0] = False  # the likeliest token stays, whatever the limit
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)


def pick(log_probs: torch.Tensor, settings: list[Sampling], draws: torch.Tensor) -> torch.Tensor:
    """One token a row, shape (rows,): the likeliest for greedy rows, else by inverting the distribution at the draw."""
    cumulative = log_probs.exp().cumsum(-1)
    drawn = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True).squeeze(-1)
    greedy = torch.tensor([s.temperature <= 0 for s in settings])
    return torch.where(greedy, log_probs.argmax(-1), drawn.clamp(max=log_probs.shape[-1] - 1))
