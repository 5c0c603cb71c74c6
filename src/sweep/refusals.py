"""Refused before anything starts or is written: no GPU, no earlier campaign, no winner before, no place to write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sweep.config import missing_upstream
from sweep.core.plan import CampaignPlan
from sweep.core.stage import SearchRule, Stage
from sweep.errors import ConfigError
from sweep.reading import missing_file, winners


def refuse_without_gpu(plan: CampaignPlan) -> None:
    """Raises: ConfigError: if the model needs a GPU that neither this machine nor a cluster address can offer."""
    if plan.engine != "verl" or not plan.model.needs_gpu or plan.cluster_address:
        return
    from sweep.adapters.nvml_probe import read

    reading = read()
    if len(reading.devices) < plan.model.gpus:
        raise ConfigError(
            f"model {plan.model.name} needs {plan.model.gpus} NVIDIA GPU(s), but this machine has "
            f"{len(reading.devices)}; here model=tiny runs, or model={plan.model.name} engine=rehearsal to rehearse, "
            f"or give a cluster with GPUs: cluster=ray cluster.address=HOST:PORT"
        )


def refuse_bad_request(plan: CampaignPlan) -> None:
    """Raises: ConfigError: if an earlier campaign or a sampler does not exist, a range cannot be searched, or trials of
    another engine would count."""
    from sweep.adapters.search_space import try_out

    if plan.earlier is not None:
        _refuse_unknown(plan.earlier, plan.earlier_url)
        _refuse_other_engine(plan, plan.earlier, plan.earlier_url, "leave earlier out, or name another one")
    _refuse_other_engine(plan, plan.name, plan.storage_url, "choose another campaign=NAME")
    for stage in (plan.stage(name) for name in plan.wanted):
        if isinstance(stage.rule, SearchRule):
            try_out(stage, stage.rule, plan.seeds[0])
        elif (named := _unused_sampler(plan, stage)) is not None:
            _refuse_unknown_sampler(stage, named)


def _unused_sampler(plan: CampaignPlan, stage: Stage) -> str | None:
    """The sampler that the stage's settings name although its rule asks none."""
    content: object = plan.configuration
    for key in ("stages", stage.name, "search", "sampler"):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, str) else None


def _refuse_unknown_sampler(stage: Stage, named: str) -> None:
    """Raises: ConfigError: if Optuna has no sampler of this name."""
    from sweep.adapters.search_space import sampler_names

    if named not in sampler_names():
        raise ConfigError(f"stages.{stage.name}.search.sampler is {named}; Optuna has {', '.join(sampler_names())}")


def _refuse_other_engine(plan: CampaignPlan, campaign: str, url: str, way_out: str) -> None:
    """Raises: ConfigError: if the campaign ran on another engine: simulated trials are no evidence for real ones."""
    from sweep.adapters.optuna_store import engine_of

    engine = None if missing_file(url) else engine_of(url, campaign)
    if engine not in (None, plan.engine):
        raise ConfigError(
            f"campaign {campaign} was run with engine={engine}, which does not mix with engine={plan.engine}; {way_out}"
        )


def _refuse_unknown(earlier: str, url: str) -> None:
    """Raises: ConfigError: if the campaign has begun no stage in this storage. Makes no file."""
    from sweep.adapters.optuna_store import campaigns
    from sweep.adapters.redaction import redacted

    if missing_file(url):
        raise ConfigError(f"campaign {earlier} was never run: there is no {url}; leave earlier out")
    held = campaigns(url)
    if earlier not in held:
        raise ConfigError(
            f"campaign {earlier} was never run: {redacted(url)} has {', '.join(held) or 'no campaign'}; name one that "
            "was, or leave earlier out"
        )


def refuse_without_upstream(plan: CampaignPlan) -> None:
    """Raises: ConfigError: if a wanted stage starts from a winner that does not exist. Makes no file."""
    missing = missing_upstream(plan, {} if missing_file(plan.storage_url) else winners(plan))
    if missing:
        raise ConfigError(missing)


def writable(folder: Path) -> Path:
    """The folder, made if need be.

    Raises:
        ConfigError: if nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with runs=FOLDER"
        ) from error
    return folder
