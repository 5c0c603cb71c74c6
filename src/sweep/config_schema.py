"""The schemas of `conf/`: mutable dataclasses, as OmegaConf wants them; `CampaignConfig` is the whole of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sweep.guard_settings import CheckpointsConfig, GuardsConfig

ALL_STAGES = "all"


@dataclass
class BudgetConfig:
    """`budget:`"""

    steps: int = 500
    seeds: int = 1
    warmup_steps: int = 5
    schedule_steps: int = 10000
    throughput_steps: int = 40
    gpu_hours: float | None = None
    early_stop: bool = True


@dataclass
class ConfirmConfig:
    """`confirm:`"""

    seeds: int = 3
    retest: bool = False


@dataclass
class RuntimeConfig:
    """`runtime:`"""

    reuse: bool = True
    start_seconds: float = 1200.0
    step_seconds: float = 900.0
    end_seconds: float = 120.0


@dataclass
class ClusterConfig:
    """`conf/cluster/`"""

    name: str = "local"
    address: str | None = None
    slots: int = 1
    unattended_seconds: float = 3600.0


@dataclass
class ModelConfig:
    """`conf/model/`"""

    name: str = "tiny"
    path: str = "generated"
    needs_gpu: bool = False
    gpus: int = 1
    gpu_gib: float | None = None
    hidden_size: int | None = None
    rollout: str | None = None
    verl: list[str] = field(default_factory=list)


@dataclass
class TaskConfig:
    """`conf/task/`"""

    name: str = "arithmetic"
    train_files: str = "generated"
    val_files: str = "generated"
    reward: str = "generated"
    verl: list[str] = field(default_factory=list)


@dataclass
class ScheduleConfig:
    """`conf/schedule/`: the learning rate over the steps"""

    name: str = "constant"
    verl: list[str] = field(default_factory=list)


@dataclass
class CampaignConfig:
    """`conf/config.yaml`"""

    campaign: str = "tiny"
    stage: str = ALL_STAGES
    engine: str = "verl"
    seed: int = 1
    runs: str = "runs"
    storage: str | None = None
    earlier: str | None = None
    tracking: str | None = None
    plan: bool = False
    verl: list[str] = field(default_factory=list)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    confirm: ConfirmConfig = field(default_factory=ConfirmConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    preflight: dict[str, Any] = field(default_factory=dict)
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    stages: dict[str, Any] = field(default_factory=dict)
