"""What a role computes on one fixed row of tokens: the guard's second look, beside the fingerprints of its weights.

Equal weights compute equal values only if everything around them is as it was too: precision, attention, mode. Runs
inside the training workers, on all ranks together, as any forward pass of verl's does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sweep.engines.verl.plugins.workers import CRITIC, roles

TOKENS = 64
"""Length of the row: long enough for attention to matter, short enough to cost nothing. Ours."""

TOLERANCE = 1e-3
"""Largest difference of a value or log-probability (nats) that passes. Ours: kernels may add up in another order, a
step of training at a usual rate changes more."""

_STRIDE = 7919
"""Tokens lie so far apart in the vocabulary: a prime, so that they differ."""

Outputs = Mapping[str, Sequence[float]]
"""Role to one number a token: the critic's values, every other role's log-probabilities of the next token."""


def outputs(worker: Any) -> dict[str, list[float]]:
    """Of every role that this worker plays."""
    return {role: _row(part.engine, values=role == CRITIC) for role, part in roles(worker).items()}


def difference(now: Sequence[Outputs], start: Sequence[Outputs]) -> dict[str, float]:
    """Role to the largest absolute difference over ranks and tokens; infinite where one of the two is not finite."""
    found: dict[str, float] = {}
    for mine, yours in zip(now, start, strict=True):
        for role in yours:
            gaps = (torch.tensor(mine[role]) - torch.tensor(yours[role])).abs()
            largest = float(gaps.max()) if bool(torch.isfinite(gaps).all()) else float("inf")
            found[role] = max(found.get(role, 0.0), largest)
    return found


def complaints(found: Mapping[str, float]) -> list[str]:
    """A phrase for each role that computes something else than at the start."""
    return [
        f"{role}: {'values' if role == CRITIC else 'log-probabilities'} of a fixed batch differ by up to {gap:.2g}"
        for role, gap in found.items()
        if gap > TOLERANCE
    ]


def _row(engine: Any, values: bool) -> list[float]:
    from verl.utils.device import get_device_id, get_device_name

    kind, precision = get_device_name(), engine._autocast_dtype
    device = "cpu" if kind == "cpu" else get_device_id()
    tokens = (torch.arange(1, TOKENS + 1, device=device) * _STRIDE % engine.module.config.vocab_size).unsqueeze(0)
    positions = torch.arange(TOKENS, device=device).unsqueeze(0)
    autocast = torch.autocast(kind, precision, enabled=precision != torch.float32)
    with engine.eval_mode(), torch.no_grad(), autocast:
        output = engine.module(input_ids=tokens, attention_mask=None, position_ids=positions, use_cache=False)
    if values:
        row = output[2] if hasattr(engine.module, "v_head") else output.logits  # as verl reads a trl value head
        return [float(v) for v in row.float().flatten()]
    chosen = output.logits[0, :-1].float().log_softmax(-1).gather(-1, tokens[0, 1:, None])
    return [float(v) for v in chosen[:, 0]]
