"""vLLM's token budget by arithmetic: the article's formula, which budgets are worth trying, and what they would take.

The formula is a bound and not an answer: it knows neither weights nor cache. What a model really bears is measured.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression

MEMORY_SHARE = 0.65
"""Share of the GPU's memory in the formula. Source: S0 section 2.3."""

HIDDEN_DIVISOR = 8
"""Divisor of the hidden size in the formula. Source: S0 section 2.3."""

DEFAULT_BUDGET = 8192
"""verl's default. Source: verl 0.9.1 trainer/config/rollout/rollout.yaml."""

DOUBLINGS = 2
"""Candidates reach so many doublings to either side of the default. Ours: verl's own examples use 1,024 to 32,768."""

LARGEST_BUDGET = 65_536
"""Budget above which nothing is worth a trial, whatever the formula allows. Ours: twice the largest candidate; small
models, for which the formula gives more, were slower above 8,192 (one H200: tests/data/real_logs)."""

KV_BYTES = 2
"""Bytes of a cached value: bfloat16. Source: verl 0.9.1 trainer/config/rollout/rollout.yaml."""

KIB = 1024


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


def candidates(clamp: int, max_num_seqs: int = 1) -> tuple[int, ...]:
    """Budgets worth trying, rising: powers of two around the default, under the clamp.

    None is below `max_num_seqs`, since each running sequence takes a token of the budget and vLLM refuses less. Empty
    if the clamp leaves none.
    """
    most = min(clamp, LARGEST_BUDGET)
    steps = [DEFAULT_BUDGET * 2**n if n >= 0 else DEFAULT_BUDGET >> -n for n in range(-DOUBLINGS, DOUBLINGS + 1)]
    if steps[-1] < max_num_seqs <= most:
        return (max_num_seqs,)
    return tuple(budget for budget in steps if max_num_seqs <= budget <= most)


def overestimate(clamp: int, largest_that_worked: int) -> float:
    """How many times too high the formula is where larger budgets than this were refused; at most 1 if it is not."""
    return clamp / largest_that_worked


def kv_bytes_per_token(layers: int, kv_heads: int, head_size: int) -> int:
    """Bytes that a token takes in the cache: a key and a value for each layer and key-value head."""
    return 2 * layers * kv_heads * head_size * KV_BYTES


def activation_gib(tokens: int, kib_per_token: float) -> float:
    """GiB that the profile run of a budget of so many tokens takes from the cache, at a measured price a token."""
    return tokens * kib_per_token / KIB**2


def cache_tokens_at(budget: int, measured: Sequence[tuple[int, float]]) -> float:
    """Tokens that the cache would hold at this budget, from (budget, cache tokens) of budgets that were measured.

    A larger budget takes its activations from the cache in proportion, so the points lie on a line. Never negative;
    one point is all that is known, wherever it lies.

    Raises:
        ValueError: if nothing was measured.
    """
    if not measured:
        raise ValueError("no budget was measured")
    budgets, tokens = zip(*measured, strict=True)
    if len(set(budgets)) < 2:
        return float(tokens[-1])
    slope, intercept = linear_regression(budgets, tokens)
    return max(0.0, intercept + slope * budget)
