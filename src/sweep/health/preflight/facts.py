"""`Facts`: what is known around a configuration. A fact that is None is unknown, and its checks stay silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.health.preflight.limits import DEFAULT, PreflightLimits


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Shape of a model, from its `config.json`; `parameters` counts weights."""

    parameters: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    vocabulary: int | None = None
    max_positions: int | None = None


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """An override whose key verl's configuration does not have; `suggestions` are nearest first."""

    key: str
    suggestions: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Machine, model, data and request around a configuration.

    `given` are the keys that were set on purpose, `swept` those that a campaign varies, `added` those given with
    Hydra's `+`; `mistyped` are keys of a wrong type, with verl's default. Sizes of GPUs and disks are GiB.
    `reward_error` says why the reward function does not load. `limits` are the thresholds of the checks.
    """

    given: frozenset[str] | None = None
    swept: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    unknown_keys: tuple[UnknownKey, ...] = ()
    mistyped: Mapping[str, object] = field(default_factory=dict)
    model: ModelFacts = field(default_factory=ModelFacts)
    critic_model: ModelFacts = field(default_factory=ModelFacts)
    gpu_count: int | None = None
    gpu_gib: float | None = None
    logical_cpus: int | None = None
    host_memory_gib: float | None = None
    free_disk_gib: float | None = None
    ray_temp_dir: str | None = None
    dataset_rows: int | None = None
    rows_after_filter: int | None = None
    dataset_columns: frozenset[str] | None = None
    data_sources: frozenset[str] | None = None
    missing_files: Mapping[str, str] = field(default_factory=dict)
    missing_modules: frozenset[str] = frozenset()
    reward_error: str | None = None
    trial_steps: int | None = None
    existing_checkpoint: str | None = None
    verl_version: str | None = None
    limits: PreflightLimits = DEFAULT

    def set_on_purpose(self, key: str) -> bool:
        """Whether the user or a campaign chose this key's value; False if that is unknown."""
        return key in self.swept or (self.given is not None and key in self.given)
