"""The upper clamp of the token budget: the article's memory formula, which is a bound and not an answer."""

from __future__ import annotations

MEMORY_SHARE = 0.65
"""Share of the GPU's memory in the formula. Source: S0 section 2.3."""

HIDDEN_DIVISOR = 8
"""Divisor of the hidden size in the formula. Source: S0 section 2.3."""


def token_clamp(gpu_gib: float, hidden_size: int) -> int:
    """Largest max_num_batched_tokens worth trying on a GPU of so many GiB: 80 and 4096 give 106,496.

    GPU_GB x 0.65 x 1024^2 / (hidden_size / 8), in tokens. vLLM itself does not bound the budget by memory, so this
    only ends a ladder. Source: S0 section 2.3.

    Raises:
        ValueError: for a size that is not positive.
    """
    if gpu_gib <= 0 or hidden_size <= 0:
        raise ValueError(f"gpu_gib and hidden_size must be positive, got {gpu_gib} and {hidden_size}")
    return int(gpu_gib * MEMORY_SHARE * 1024 * 1024 / (hidden_size / HIDDEN_DIVISOR))
