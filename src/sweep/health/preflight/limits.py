"""`PreflightLimits`: every threshold of preflight's checks, with its source; a caller may replace any of them.

What verl, an engine or a data type fixes is no threshold and stays a constant beside its check. "Ours" marks what no
source gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sweep.core.within import Within
from sweep.errors import ConfigError

POSITIVE = Within(low=0, open_low=True)
COUNT = Within(low=1)
SHARE = Within(low=0, high=1, open_low=True)


@dataclass(frozen=True, slots=True)
class PreflightLimits:
    """The defaults are the method's; `dataclasses.replace` changes one.

    Raises:
        ConfigError: if a lower end is not below its upper one.
    """

    gpu_memory_utilization: Annotated[float, SHARE] = 0.7
    """Share of GPU memory for the rollout above which it runs out beside an actor that is not offloaded. Source: S1
    section 2.1."""

    kv_cache_share: Annotated[float, Within(low=0, high=1, open_high=True)] = 0.2
    """Share of the rollout's memory that should be left for the KV cache. Ours, after verl docs
    perf/best_practices.rst."""

    full_share: Annotated[float, SHARE] = 0.9
    """Share of a GPU's memory above which an estimate is too tight. Ours: context, NCCL buffers and fragmentation need
    a tenth."""

    worker_gib: Annotated[float, Within(low=0)] = 1.0
    """Host memory of an idle agent-loop or reward worker, GiB. Ours: measured on verl 0.9.1."""

    filter_rows_ratio: Annotated[float, Within(low=1)] = 1.2
    """Rows for each row of a batch under which a length filter whose effect nobody knows may leave no batch. Ours."""

    kl_coef_low: Annotated[float, POSITIVE] = 0.0005
    """Lower end of the safe KL coefficients. Source: S0 section 1.3."""
    kl_coef_high: Annotated[float, POSITIVE] = 0.01
    """Upper end of the safe KL coefficients. Source: S0 section 1.3."""

    lr_low: Annotated[float, POSITIVE] = 5e-7
    """Lower end of the actor's safe learning rates. Source: S0 section 1.3."""
    lr_high: Annotated[float, POSITIVE] = 5e-6
    """Upper end of the actor's safe learning rates. Source: S0 section 1.3."""

    ulysses_size: Annotated[int, COUNT] = 4
    """Largest sequence-parallel size that pays. Source: S0 section 3.1: 4 rather than 8 on 8 GPUs, communication
    -37 %."""

    long_sequence_tokens: Annotated[int, COUNT] = 32768
    """Tokens of a sequence above which Ulysses is worth having at all. Source: verl docs/perf/perf_tuning.rst."""

    large_model_parameters: Annotated[float, Within(low=0)] = 7e9
    """Parameters from which FSDP's memory options are advised on. Source: S0 section 3.2."""

    critic_tokens_ratio: Annotated[float, Within(low=0)] = 2.0
    """How many times the actor's tokens a critic's micro-batch should hold: it has no logits. Source: verl
    docs/perf/perf_tuning.rst."""

    log_prob_micro_batch: Annotated[int, COUNT] = 20
    """Rows of a log-prob micro-batch above which padding costs more than it saves. Source: S1 section 2.3."""

    def __post_init__(self) -> None:
        for low, high in RANGES:
            ends = getattr(self, low), getattr(self, high)
            if not ends[0] < ends[1]:
                raise ConfigError(
                    f"preflight's {low} must be below {high}, got {ends[0]:g} and {ends[1]:g}; "
                    f"the method's are {getattr(DEFAULT, low):g} and {getattr(DEFAULT, high):g}"
                )


RANGES = (("kl_coef_low", "kl_coef_high"), ("lr_low", "lr_high"))
"""Limits that are the two ends of one range."""

DEFAULT = PreflightLimits()
"""The method's thresholds."""
