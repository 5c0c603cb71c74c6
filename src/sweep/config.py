"""The configuration: composition of `conf/` and `sweeps/` by Hydra, and `to_plan`, which checks and freezes.

Nothing beyond this module sees OmegaConf. Every error is a `ConfigError` that says what was asked, what was found and
what would work.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.config_messages import readable
from sweep.config_schema import ALL_STAGES, CampaignConfig
from sweep.core import verl_keys as keys
from sweep.core.kl_band import interval_for
from sweep.core.overrides import Overrides
from sweep.core.plan import CONFIRM_OFFSET, CampaignPlan, ModelFacts, Timeouts, storage_file
from sweep.core.stage import ConfirmRule, Stage
from sweep.core.within import Within, require
from sweep.errors import ConfigError
from sweep.guard_settings import preflight_limits_of, settings_of
from sweep.settings_text import parse_settings
from sweep.stage_files import stage_from
from sweep.stage_group import offer, own_stages
from sweep.tasks import assets
from sweep.typed_overrides import check_overrides

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: `conf/` and `sweeps/` lie here (the package is installed in editable mode)."""

CAMPAIGN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_SEED = 2**32 - 1
"""Source: numpy.random.seed."""
ENGINES = ("verl", "rehearsal")
RETEST, CONFIRM = "retest", "confirm"
"""The stages that `confirm:` switches."""
SWITCHES = {
    RETEST: ("confirm.retest=false", "confirm.retest=true"),
    CONFIRM: ("confirm.seeds=0", "confirm.seeds=N with N of 1 or more"),
}
"""What leaves such a stage out, and what takes it in."""


def compose(overrides: Sequence[str], root: Path = ROOT) -> CampaignConfig:
    """The configuration of `conf/` and `sweeps/` with the command line's overrides, typed and resolved.

    Raises:
        ConfigError: for an unknown key, option, type or value that cannot be parsed.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    check_overrides(overrides)
    try:
        if not OmegaConf.load(root / "conf" / "config.yaml"):
            raise ConfigError(f"{root / 'conf' / 'config.yaml'} is empty; put the project's own back in its place")
        GlobalHydra.instance().clear()
        offer(root / "sweeps")
        register_resolvers()
        with initialize_config_dir(str(root / "conf"), version_base=None):
            composed = hydra_compose("config", overrides=[*own_stages(root), *overrides])
        typed = OmegaConf.merge(OmegaConf.structured(CampaignConfig), composed)
        OmegaConf.resolve(typed)
        config = OmegaConf.to_object(typed)
    except YAMLError as error:
        raise ConfigError(f"a file in {root / 'conf'} cannot be read: {' '.join(str(error).split())}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(readable(error, overrides, lambda: _known_keys(root))) from error
    assert isinstance(config, CampaignConfig)
    return config


def register_resolvers() -> None:
    """What the files in `sweeps/` compute with, `${least:...}` and `${band_interval:...}`."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("least", min, replace=True)
    OmegaConf.register_new_resolver("band_interval", _band_interval, replace=True)


def _band_interval(steps: Any, *bounds: int) -> Any:
    """The resolver of sweeps/kl.yaml; what is no number of steps passes, for `to_plan` to refuse where it was given."""
    return interval_for(steps, *bounds) if isinstance(steps, int) else steps


def to_plan(config: CampaignConfig) -> CampaignPlan:
    """The campaign as values, every cross-field rule checked.

    Raises:
        ConfigError: for a name, stage, number or verl setting that cannot work.
    """
    _check_name(config.campaign)
    if config.earlier is not None:
        _check_name(config.earlier, "earlier")
        if config.earlier == config.campaign:
            raise ConfigError(f"earlier must name another campaign than campaign={config.campaign}; leave it out")
    _check_numbers(config)
    preflight_limits_of(config.preflight)
    if config.engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {config.engine!r}")
    base = _base(config)
    model = ModelFacts(
        config.model.name,
        config.model.path,
        config.model.needs_gpu,
        config.model.gpus,
        config.model.gpu_gib,
        config.model.hidden_size,
    )
    stages = _in_order(_after_all(_stages(config, base, model), config))
    _check_seeds(config, stages)
    folder = Path(config.runs) / config.campaign
    return CampaignPlan(
        name=config.campaign,
        folder=str(folder),
        stages=stages,
        wanted=_wanted(config, stages),
        base=base,
        model=model,
        seeds=tuple(config.seed + i for i in range(max(1, config.budget.seeds))),
        engine=config.engine,
        slots=config.cluster.slots,
        cluster_address=config.cluster.address,
        reuse=config.runtime.reuse,
        save_steps=config.checkpoints.save_steps,
        timeouts=Timeouts(
            config.runtime.start_seconds,
            config.runtime.step_seconds,
            config.runtime.end_seconds,
            config.cluster.unattended_seconds,
        ),
        gpu_hours=config.budget.gpu_hours,
        early_stop=config.budget.early_stop,
        storage_url=config.storage or storage_file(folder),
        earlier=config.earlier,
        earlier_url=config.storage or storage_file(Path(config.runs) / (config.earlier or "")),
        tracking_uri=config.tracking or f"sqlite:///{folder.resolve() / 'mlflow.db'}",
        configuration=as_mapping(config),
    )


def _stages(config: CampaignConfig, base: Overrides, model: ModelFacts) -> list[Stage]:
    """The stages that the campaign has; without new seeds there is no confirmation, and no second test if not asked."""
    left_out = {name for name, asked in ((RETEST, config.confirm.retest), (CONFIRM, config.confirm.seeds)) if not asked}
    wanted = {name: content for name, content in config.stages.items() if name not in left_out}
    return [stage_from(name, content, base, model) for name, content in wanted.items()]


def _after_all(stages: list[Stage], config: CampaignConfig) -> list[Stage]:
    """The stages with every confirmation that does not say what it follows after all stages that search."""
    searching = tuple(s.name for s in stages if not isinstance(s.rule, ConfirmRule))
    last = {s.name for s in stages if isinstance(s.rule, ConfirmRule) and config.stages[s.name].get("follows") is None}
    return [replace(s, follows=searching) if s.name in last else s for s in stages]


def as_mapping(config: CampaignConfig) -> dict[str, object]:
    """The configuration as plain types, for the record."""
    from dataclasses import asdict

    return asdict(config)


def _base(config: CampaignConfig) -> Overrides:
    return Overrides.of(
        [
            (f"+{keys.SCHEDULE_STEPS}", config.budget.schedule_steps),
            (keys.GPUS_PER_NODE, config.model.gpus),
            *assets.settings(sources(config)),
            *([(keys.ROLLOUT_NAME, config.model.rollout)] if config.model.rollout else []),
            *settings_of(config.guards, config.checkpoints),
            *parse_settings(config.model.verl, "model.verl"),
            *parse_settings(config.task.verl, "task.verl"),
            *parse_settings(config.schedule.verl, "schedule.verl"),
            *parse_settings(config.verl, "verl"),
        ]
    )


def sources(config: CampaignConfig) -> assets.Sources:
    """Where the campaign's model, data and reward come from, `~` as the user's folder: verl leaves it as it is, and
    transformers takes a path with one for a name on the hub."""
    task = config.task
    given = (config.model.path, task.train_files, task.val_files, task.reward)
    return assets.Sources(*map(os.path.expanduser, given))


def _check_name(name: str, key: str = "campaign") -> None:
    if not CAMPAIGN_NAME.fullmatch(name):
        raise ConfigError(
            f"{key} must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit, got {name!r}"
        )


def _check_numbers(config: CampaignConfig) -> None:
    budget, runtime, model = config.budget, config.runtime, config.model
    positive = Within(low=0, high=math.inf, open_low=True)
    for name, value, within in (
        ("budget.steps", budget.steps, Within(low=1)),
        ("budget.seeds", budget.seeds, Within(low=1, high=CONFIRM_OFFSET)),
        ("budget.warmup_steps", budget.warmup_steps, Within(low=0)),
        ("budget.throughput_steps", budget.throughput_steps, Within(low=1)),
        ("budget.gpu_hours", budget.gpu_hours, positive),
        ("confirm.seeds", config.confirm.seeds, Within(low=0)),
        ("seed", config.seed, Within(low=0, high=MOST_SEED - CONFIRM_OFFSET - config.confirm.seeds)),
        ("cluster.slots", config.cluster.slots, Within(low=0)),
        ("cluster.unattended_seconds", config.cluster.unattended_seconds, positive),
        ("runtime.start_seconds", runtime.start_seconds, positive),
        ("runtime.step_seconds", runtime.step_seconds, positive),
        ("runtime.end_seconds", runtime.end_seconds, positive),
        ("model.gpus", model.gpus, Within(low=1)),
        ("model.gpu_gib", model.gpu_gib, positive),
        ("model.hidden_size", model.hidden_size, Within(low=1)),
    ):
        require(name, value, within, ", or null for no limit" if name == "budget.gpu_hours" else "")
    for name, text in (("runs", config.runs), ("model.path", model.path), ("model.name", model.name)):
        if not text.strip():
            raise ConfigError(f"{name} must not be empty")
    if budget.warmup_steps >= budget.steps:
        raise ConfigError(
            f"budget.warmup_steps must be below budget.steps, got {budget.warmup_steps} and {budget.steps}"
        )
    if budget.schedule_steps < budget.steps:
        raise ConfigError(
            f"budget.schedule_steps is the whole run and cannot be below budget.steps, "
            f"got {budget.schedule_steps} and {budget.steps}"
        )


def _check_seeds(config: CampaignConfig, stages: tuple[Stage, ...]) -> None:
    """Raises: ConfigError: if a stage asks for more seeds than the campaign has."""
    for stage in stages:
        if not isinstance(stage.rule, ConfirmRule) and stage.budget.seeds > config.budget.seeds:
            raise ConfigError(
                f"stages.{stage.name}.budget.seeds is {stage.budget.seeds}, but the campaign has "
                f"{config.budget.seeds}; give budget.seeds={stage.budget.seeds}"
            )


def _in_order(stages: list[Stage]) -> tuple[Stage, ...]:
    """The stages with every stage after those it follows."""
    by_name = {s.name: s for s in stages}
    placed: dict[str, Stage] = {}

    def place(stage: Stage, trail: tuple[str, ...]) -> None:
        for name in stage.follows:
            if name in trail or name == stage.name:
                raise ConfigError(f"stages follow each other in a circle: {' > '.join((*trail, stage.name, name))}")
            if name not in by_name:
                raise ConfigError(f"stage {stage.name} follows {name!r}, but the stages are {', '.join(by_name)}")
            place(by_name[name], (*trail, stage.name))
        placed[stage.name] = stage

    for stage in stages:
        place(stage, ())
    return tuple(placed.values())


def _wanted(config: CampaignConfig, stages: tuple[Stage, ...]) -> tuple[str, ...]:
    asked, names = config.stage, tuple(s.name for s in stages)
    if asked == ALL_STAGES:
        return names
    if asked in config.stages and asked not in names:
        off, on = SWITCHES[asked]
        raise ConfigError(f"stage {asked} was asked for, but {off} leaves it out; give {on}")
    if asked not in names:
        raise ConfigError(f"stage must be one of {', '.join((*names, ALL_STAGES))}, got {asked!r}")
    return (asked,)


def _known_keys(root: Path) -> list[str]:
    """Every dotted key of the default configuration."""

    def walk(content: Mapping[str, Any], before: str) -> list[str]:
        found: list[str] = []
        for key, value in content.items():
            inner = walk(value, f"{before}{key}.") if isinstance(value, Mapping) and value else [before + key]
            found.extend(inner)
        return found

    return walk(as_mapping(compose((), root)), "")


def missing_upstream(plan: CampaignPlan, frozen: Mapping[str, object]) -> str:
    """What to run first, if a wanted stage starts from a winner that neither exists nor will be made now."""
    for name in plan.wanted:
        for upstream in plan.upstream_of(plan.stage(name)):
            if upstream not in frozen and upstream not in plan.wanted:
                return (
                    f"stage {name} needs the winner of {upstream}, but campaign {plan.name} has none; "
                    f"run {plan.command('sweep', f'stage={upstream}')} first"
                )
    return ""
