"""What to change after memory ran out, in order, and what each costs: `remedies`, `offload_tradeoff`, `comparability`.

Offload is the last remedy: it saves memory and costs time. It never makes a run faster, whatever a single
measurement on a crowded GPU suggests. A retry with other micro-batches is the same experiment only where verl's
losses do not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.errors import ConfigError
from sweep.health.finding import Move, Way


@dataclass(frozen=True, slots=True)
class OffloadTrial:
    """A measured run: share of the state that is offloaded, seconds a step, peak memory."""

    offload: float
    step_seconds: float
    peak_gib: float


@dataclass(frozen=True, slots=True)
class OffloadTradeoff:
    """The most offload against the least: how many times slower, and how much less memory."""

    slowdown: float
    memory_saved_gib: float


def offload_tradeoff(trials: Sequence[OffloadTrial]) -> OffloadTradeoff:
    """What offload costs and saves by measurement.

    Raises:
        ConfigError: there are no two different shares, or a step took no time.

    Source: NeMo-RL#3628, pytorch#74588; S0 section 3.2 claims the opposite of the slow-down, see METHOD section 7.
    """
    least, most = min(trials, key=lambda t: t.offload, default=None), max(trials, key=lambda t: t.offload, default=None)
    if least is None or most is None or least.offload == most.offload or least.step_seconds <= 0:
        raise ConfigError("to weigh offload, measure at least two different shares of it with positive step times")
    return OffloadTradeoff(most.step_seconds / least.step_seconds, least.peak_gib - most.peak_gib)


def remedies(tradeoff: OffloadTradeoff | None = None) -> tuple[Move, ...]:
    """Changes against GPU memory running out in training, the cheapest first and offload last, with its price."""
    price = "slower" if tradeoff is None else f"{tradeoff.slowdown:.2f} times the step time"
    saved = "" if tradeoff is None else f", {tradeoff.memory_saved_gib:.2f} GiB saved"
    return (
        Move(Way.LOWER, keys.ACTOR_MICRO_BATCH, "the same gradient in smaller pieces"),
        Move(Way.LOWER, keys.LOG_PROB_MICRO_BATCH),
        Move(Way.LOWER, keys.MEMORY_UTILIZATION, "leaves more to training, less to the rollout's cache"),
        Move(Way.SET, keys.ACTOR_OPTIMIZER_OFFLOAD, f"true: {price}{saved}"),
        Move(Way.SET, keys.ACTOR_PARAM_OFFLOAD, f"true: {price}{saved}"),
    )


MICRO_BATCHES = frozenset({keys.ACTOR_MICRO_BATCH, keys.CRITIC_MICRO_BATCH})
"""Settings that split a mini-batch without meaning to change its gradient."""

HARMLESS = frozenset(
    {
        keys.MEMORY_UTILIZATION,
        keys.MAX_SEQS,
        keys.MAX_BATCHED_TOKENS,
        keys.LOG_PROB_MICRO_BATCH,
        keys.ROLLOUT_FREE_CACHE,
        keys.ACTOR_PARAM_OFFLOAD,
        keys.ACTOR_OPTIMIZER_OFFLOAD,
    }
)
"""Settings that change memory and time only."""


@dataclass(frozen=True, slots=True)
class Comparability:
    """Whether a retried trial may be ranked beside the others; `tag` marks it, empty if nothing needs marking."""

    comparable: bool
    tag: str
    action: str


def comparability(
    before: Mapping[str, object], after: Mapping[str, object], micro_batch_matters: bool
) -> Comparability:
    """What a guard's changes between two attempts do to the ranking.

    `micro_batch_matters` holds for verl versions whose losses are normalised by micro-batch (critic: verl#6957,
    KL-Cov: verl#7829).
    """
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if changed - MICRO_BATCHES - HARMLESS:
        return Comparability(False, "setting_changed", "rank it as a trial of its own, under its new settings")
    if changed & MICRO_BATCHES:
        if micro_batch_matters:
            return Comparability(
                False,
                "micro_batch_changed",
                "lower the micro batch for all trials of the step, or re-run the baseline with it",
            )
        return Comparability(True, "micro_batch_changed", "note the change; the gradient is the same")
    return Comparability(True, "memory_settings_changed" if changed else "", "note the change" if changed else "")
