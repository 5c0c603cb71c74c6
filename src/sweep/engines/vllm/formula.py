"""`held_against`: S0's formula for the token budget beside what budgets were measured to take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.core.token_budget import (
    activation_gib,
    cache_tokens_at,
    kv_bytes_per_token,
    overestimate,
    token_clamp,
)
from sweep.health.preflight.facts import ModelFacts

KIB = 1024


@dataclass(frozen=True, slots=True)
class FormulaCheck:
    """The formula's budget and what it would do, by extrapolation from measured budgets; None is unknown.

    `overestimate` is at least how many times too high it is, known only where a larger budget was refused.
    """

    budget: int
    cache_tokens: float | None = None
    exceeds_cache: bool | None = None
    activation_gib: float | None = None
    overestimate: float | None = None


def held_against(
    measured: Sequence[tuple[int, float]], refused: Sequence[int], model: ModelFacts, gpu_gib: float
) -> FormulaCheck | None:
    """The check over (budget, cache tokens) of budgets that ran and budgets that did not; None for unknown models."""
    if not model.hidden_size:
        return None
    budget = token_clamp(gpu_gib, model.hidden_size)
    largest = max((b for b, _ in measured if not refused or b < min(refused)), default=None)
    cache = cache_tokens_at(budget, measured) if measured else None
    price = _kib_per_token(measured, model)
    return FormulaCheck(
        budget=budget,
        cache_tokens=cache,
        exceeds_cache=None if cache is None else budget > cache,
        activation_gib=None if price is None else activation_gib(budget, price),
        overestimate=overestimate(budget, largest) if refused and largest else None,
    )


def _kib_per_token(measured: Sequence[tuple[int, float]], model: ModelFacts) -> float | None:
    """KiB of activations that one more token of budget takes, from how the cache shrank; None if nothing shows it."""
    known = model.layers and model.kv_heads and model.head_size
    if not known or len({b for b, _ in measured}) < 2:
        return None
    assert model.layers and model.kv_heads and model.head_size
    (low, at_low), (high, at_high) = min(measured), max(measured)
    lost_bytes = (at_low - at_high) * kv_bytes_per_token(model.layers, model.kv_heads, model.head_size)
    return max(0.0, lost_bytes / (high - low) / KIB)
