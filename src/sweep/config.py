"""The configuration: schemas of `conf/` and `sweeps/`, composition by Hydra, and `to_plan`, which checks and freezes.

Nothing beyond this module sees OmegaConf. Every error is a `ConfigError` that says what was asked, what was found and
what would work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.plan import CONFIRM_OFFSET, CampaignPlan, ModelFacts, Timeouts
from sweep.core.stage import ConfirmRule, Stage
from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.guard_settings import CheckpointsConfig, GuardsConfig, settings_of
from sweep.stage_files import parse_settings, stage_from
from sweep.tasks import assets
from sweep.typed_overrides import check_overrides, unknown_key
from sweep.yaml_values import WORDS

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: `conf/` and `sweeps/` lie here (the package is installed in editable mode)."""

CAMPAIGN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ALL_STAGES = "all"
MOST_SEED = 2**32 - 1
"""Source: numpy.random.seed."""
STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
TAKEN = (ALL_STAGES, "null", "true", "false", "nan", "inf")
"""Names that mean something else where a stage is named."""

ENGINES = ("verl", "rehearsal")
RETEST, CONFIRM = "retest", "confirm"
"""The stages that `confirm:` switches."""


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
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    stages: dict[str, Any] = field(default_factory=dict)


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
        GlobalHydra.instance().clear()
        _offer_sweeps(root / "sweeps")
        OmegaConf.register_new_resolver("least", min, replace=True)
        with initialize_config_dir(str(root / "conf"), version_base=None):
            composed = hydra_compose("config", overrides=[*_own_stages(root), *overrides])
        typed = OmegaConf.merge(OmegaConf.structured(CampaignConfig), composed)
        OmegaConf.resolve(typed)
        config = OmegaConf.to_object(typed)
    except YAMLError as error:
        raise ConfigError(f"a file in {root / 'conf'} cannot be read: {' '.join(str(error).split())}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(_readable(error, overrides, root)) from error
    assert isinstance(config, CampaignConfig)
    return config


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
    stages = _in_order(_after_all(_stages(config, base, model)))
    _check_seeds(config, stages)
    folder = Path(config.runs) / config.campaign
    return CampaignPlan(
        name=config.campaign,
        folder=str(folder),
        stages=stages,
        wanted=_wanted(config.stage, stages),
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
        storage_url=config.storage or _storage_file(folder),
        earlier=config.earlier,
        earlier_url=config.storage or _storage_file(Path(config.runs) / (config.earlier or "")),
        tracking_uri=config.tracking or f"sqlite:///{folder.resolve() / 'mlflow.db'}",
        configuration=as_mapping(config),
    )


def _stages(config: CampaignConfig, base: Overrides, model: ModelFacts) -> list[Stage]:
    """The stages that the campaign has; without new seeds there is no confirmation, and no second test if not asked."""
    left_out = {name for name, asked in ((RETEST, config.confirm.retest), (CONFIRM, config.confirm.seeds)) if not asked}
    wanted = {name: content for name, content in config.stages.items() if name not in left_out}
    return [stage_from(name, content, base, model) for name, content in wanted.items()]


def _after_all(stages: list[Stage]) -> list[Stage]:
    """The stages with every confirmation after all stages that search."""
    searching = tuple(s.name for s in stages if not isinstance(s.rule, ConfirmRule))
    return [replace(s, follows=searching) if isinstance(s.rule, ConfirmRule) else s for s in stages]


def _storage_file(folder: Path) -> str:
    return f"sqlite:///{folder.resolve() / 'optuna.db'}"


def as_mapping(config: CampaignConfig) -> dict[str, object]:
    """The configuration as plain types, for the record."""
    from dataclasses import asdict

    return asdict(config)


def _offer_sweeps(folder: Path) -> None:
    """The stage files as Hydra's group `sweeps`.

    Not by way of the search path, which would need the folder above: every folder there, `runs` too, would be a group
    to Hydra, and a setting of that name could not be given on the command line.

    Raises:
        ConfigError: a file is not YAML.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf
    from yaml import YAMLError

    store = ConfigStore.instance()
    store.repo.pop("sweeps", None)
    for file in _stage_files(folder):
        try:
            content = OmegaConf.load(file)
        except (YAMLError, OSError, UnicodeError) as error:
            raise ConfigError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise ConfigError(f"{file} cannot be read: an anchor in it contains itself") from error
        if "defaults" in content:
            raise ConfigError(f"{file}: a stage's file is whole by itself and has no defaults")
        store.store(file.stem, content, group="sweeps", provider=str(file))


def _stage_files(folder: Path) -> list[Path]:
    """The files that are stages; what an editor hides beside them is none.

    Raises:
        ConfigError: a file's name cannot be a stage's.
    """
    files = [file for file in sorted(folder.glob("*.yaml")) if not file.name.startswith(".")]
    for file in files:
        if not STAGE_NAME.fullmatch(file.stem) or file.stem.casefold() in TAKEN:
            raise ConfigError(
                f"{file} cannot be a stage: its name is letters, digits, '_' and '-', starts with a letter, "
                f"and is none of {', '.join(TAKEN)}"
            )
    return files


def _own_stages(root: Path) -> list[str]:
    """Stages that a user added to `sweeps/`: every file there is a stage, whether conf/config.yaml names it or not."""
    known = {"minibatch", "kl", "token_budget", "lr_lambda", RETEST, CONFIRM}
    return [
        f"+sweeps@stages.{file.stem}={file.stem}" for file in _stage_files(root / "sweeps") if file.stem not in known
    ]


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
            *parse_settings(config.verl, "verl"),
        ]
    )


def sources(config: CampaignConfig) -> assets.Sources:
    """Where the campaign's model, data and reward come from."""
    return assets.Sources(config.model.path, config.task.train_files, config.task.val_files, config.task.reward)


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
        if value is not None and not (within.holds(value) and math.isfinite(value)):
            aside = ", or null for no limit" if name == "budget.gpu_hours" else ""
            raise ConfigError(f"{name} must be {within}{aside}, got {value}")
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


def _wanted(asked: str, stages: tuple[Stage, ...]) -> tuple[str, ...]:
    names = tuple(s.name for s in stages)
    if asked == ALL_STAGES:
        return names
    if asked not in names:
        raise ConfigError(f"stage must be one of {', '.join((*names, ALL_STAGES))}, got {asked!r}")
    return (asked,)


def _readable(error: Exception, overrides: Sequence[str], root: Path) -> str:
    """The error in our words: what was asked, what would work."""
    from hydra.errors import MissingConfigException

    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return f"{group} must be one of {', '.join(sorted(error.options))}, got {name!r}"
    if wanted := _wrong_type(error, overrides):
        return wanted
    asked = f" (asked: {' '.join(overrides)})" if overrides else ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "; ".join(line for line in lines if not line.startswith(_HYDRA_ASIDES))
    stray = re.search(r"Key '([^']+)' not in '(\w+)'", text)
    if stray:
        return _stray_key(*stray.groups())
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return unknown_key(key.group(1), _known_keys(root))
    return f"{text}{asked}; python -m sweep --cfg shows every key"


def _stray_key(key: str, schema: str) -> str:
    """Which section has a key that nobody reads, on the command line or in a file of conf/."""
    sections = {getattr(hint, "__name__", ""): name for name, hint in get_type_hints(CampaignConfig).items()}
    section = sections.get(schema, "")
    kind = get_type_hints(CampaignConfig)[section] if section else CampaignConfig
    where = f"{section} has no key {key!r}; it has" if section else f"there is no section {key!r}; there are"
    return f"{where} {', '.join(get_type_hints(kind))}"


def _wrong_type(error: Exception, overrides: Sequence[str]) -> str:
    """Which key holds a value of another type than it must, empty if that is not the error."""
    from omegaconf.errors import ValidationError

    key = getattr(error, "full_key", None) or _section_given_a_value(overrides)
    if not isinstance(error, ValidationError) or not key:
        return ""
    given = next((value for name, _, value in (o.partition("=") for o in reversed(overrides)) if name == key), None)
    got = f"got {given!r}" if given is not None else str(error).splitlines()[0]
    return f"{key} must be {_wanted_type(key)}, {got}"


def _section_given_a_value(overrides: Sequence[str]) -> str:
    """The section that the command line replaces as a whole, of which OmegaConf does not say the name."""
    sections = {name for name, hint in get_type_hints(CampaignConfig).items() if is_dataclass(hint)}
    return next((o.partition("=")[0] for o in overrides if o.partition("=")[0] in sections), "")


def _wanted_type(key: str) -> str:
    """What the schema wants under a dotted key, in words."""
    hint: Any = CampaignConfig
    for name in re.sub(r"\[.*", "", key).split("."):
        hint = get_type_hints(hint).get(name, str) if is_dataclass(hint) else (*get_args(hint), str)[-2]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next(k for k in kinds if k is not NoneType)
    words = WORDS.get(kind, "a list such as [a,b]" if get_origin(kind) is list else "a section with keys of its own")
    return words + (" or null" if NoneType in kinds else "")


_HYDRA_ASIDES = ("full_key", "object_type", "reference_type", "Set the environment", "To append", "In '", "See https")


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
                    f"run python -m sweep stage={upstream} campaign={plan.name} first"
                )
    return ""
