"""`log_probs`: the log-probability of each chosen token, many rows of logits at a time.

Where flash attention is not installed, verl takes one row (one token) at a time to save memory, and so spends a
quarter of a small model's step, on a GPU far more, on starting thousands of tiny operations. Blocks of bounded size
save as much memory and start a few. The numbers are those of verl's rows.

Source: verl utils/torch_functional.py, `logprobs_from_logits_v2`; benchmarks/bench_log_probs.py measures both.
"""

from __future__ import annotations

import torch
from torch.nn import functional

BLOCK_ELEMENTS = 1 << 26
"""Most logits in a block: 256 MiB in float32, and about as much again for what is computed of them. Ours."""


def log_probs(logits: torch.Tensor, labels: torch.Tensor, block_elements: int = BLOCK_ELEMENTS) -> torch.Tensor:
    """Log-probabilities in nats.

    Args:
        logits: (..., vocabulary), any floating type.
        labels: (...), the chosen tokens.
        block_elements: see `BLOCK_ELEMENTS`; a block has at least one row.

    Returns:
        (...), of the logits' type.
    """
    rows, chosen = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1, 1)
    height = max(1, block_elements // logits.shape[-1])
    blocks = zip(rows.split(height), chosen.split(height), strict=True)
    return torch.cat([_block(*block) for block in blocks]).view(labels.shape)


def _block(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    if rows.dtype in (torch.float32, torch.float64):
        return (rows.gather(-1, chosen) - rows.logsumexp(-1, keepdim=True)).squeeze(-1)
    return functional.log_softmax(rows, -1).gather(-1, chosen).squeeze(-1)  # a half-precision logsumexp is too coarse
