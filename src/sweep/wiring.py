"""Puts a campaign together: storage, engine, observers, and what they need from the disk. The only module that knows
every adapter; it decides nothing beyond which of them the configuration asks for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sweep.campaign import Campaign, Screen, trial_folder, trial_of
from sweep.closing import closed_after
from sweep.config import sources
from sweep.config_schema import CampaignConfig
from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides, content_hash
from sweep.core.plan import CampaignPlan
from sweep.core.progress import Proposal, Record
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.errors import ConfigError, StoreError, SweepError
from sweep.fleet import Fleet
from sweep.guard_settings import hardware_limits_of, preflight_limits_of
from sweep.new_folder import NewFolder
from sweep.ports import CampaignInfo, Engine, Observer, Store
from sweep.purse import Purse, paid_outcomes
from sweep.reading import everything_known
from sweep.refusals import refuse_bad_request, refuse_without_gpu, refuse_without_upstream, writable
from sweep.stages.samples import Group, out_of_range, samples, searched_keys
from sweep.tasks import assets

if TYPE_CHECKING:
    from sweep.engines.verl.screening import Examined
    from sweep.engines.verl.settings import EngineSettings

Examine: TypeAlias = "Callable[[Trial, frozenset[str]], Examined]"
"""What preflight finds in a trial whose stage compares the values of these verl keys."""


def run_campaign(config: CampaignConfig, plan: CampaignPlan) -> bool:
    """Runs the wanted stages; True if any trial of them failed.

    Raises:
        ConfigError: if the request cannot be carried out; nothing was started.
        SweepError: for everything else that a user can meet.
    """
    from sweep.report.progress import say

    refuse_without_gpu(plan)
    refuse_bad_request(plan)
    refuse_without_upstream(plan)
    folder = NewFolder(Path(plan.folder))
    store = folder.opened_with(lambda: _store(plan))
    try:
        paths = _assets(config, plan)
        examined = _examiner(config, plan, paths)
        warnings = _refuse_impossible(plan, store, examined)
        engine = start_engine(plan, paths)
        with closed_after(engine.close):
            engine.check(_base_trial(plan))
            for notice in (*engine.notices(), *warnings):
                say(notice)
            return _run(config, plan, store, engine, folder, lambda trial: examined(trial, frozenset()).obstacle, paths)
    finally:
        folder.drop_unless_begun()  # before anybody else can take the campaign and begin in it
        store.close()


def price(plan: CampaignPlan) -> str:
    """What the wanted stages can still cost, as text; makes and starts nothing.

    Raises:
        ConfigError: if the run would be refused before its first stage.
    """
    from sweep.foresight import outlooks
    from sweep.report.price import Outlook, price_text, stage_prices, step_seconds

    refuse_bad_request(plan)
    refuse_without_upstream(plan)
    found: dict[str, Outlook] = {}
    records: dict[str, tuple[Record, ...]] = {}
    purse = Purse(plan.gpu_hours, plan.model.gpus)
    with everything_known(plan) as store:
        if store is not None:
            found = outlooks(plan, store)
            records = {stage.name: store.records(stage) for stage in plan.stages}
            purse.fill(paid_outcomes(plan, store))
    for name, outlook in found.items():
        records[name] = tuple({r.trial.id: r for r in (*records.get(name, ()), *outlook.known)}.values())
    return price_text(plan, stage_prices(plan, found), step_seconds(records), purse.gpu_hours)


def _run(
    config: CampaignConfig,
    plan: CampaignPlan,
    store: Store,
    engine: Engine,
    folder: NewFolder,
    screen: Screen,
    paths: dict[str, str],
) -> bool:
    from sweep.health.doctor import classify
    from sweep.report.failures import failure_lines
    from sweep.report.progress import say
    from sweep.report.summary import write_summary

    info = CampaignInfo(plan.name, folder.path, plan.wanted, plan.configuration)
    versions = engine.versions()
    fleet = Fleet(
        engine,
        folder_of=lambda trial: trial_folder(plan, trial).resolve(),
        classify=classify,
        timeouts=plan.timeouts,
        reuse=plan.reuse,
    )
    observers = _observers(config, plan, store, fleet)
    campaign = Campaign(
        plan,
        store=store,
        fleet=fleet,
        observers=observers,
        screen=screen,
        versions=versions,
        purse=Purse(plan.gpu_hours, plan.model.gpus),
    )
    code = 1
    left: SweepError | None = None
    try:
        for observer in observers:
            observer.campaign_started(info)
        folder.begin()
        with closed_after(fleet.close):
            campaign.run()
            code = 0
    except SweepError as error:
        if code != 0:
            code = error.exit_code
            if not isinstance(error, StoreError) and (failures := failure_lines(plan, store)):
                say("\n".join(failures))
            raise
        left = error
    finally:
        for observer in observers:
            observer.campaign_ended(code)
    command = (lambda trial: _best_script(trial, plan, paths)) if plan.engine == "verl" else None
    summary = write_summary(plan, store, folder.path, command)
    say(summary.text)
    if left is not None:
        raise left
    return summary.failed_trials > 0


def _store(plan: CampaignPlan) -> Store:
    writable(Path(plan.folder))
    from sweep.adapters.optuna_store import OptunaStore

    earlier = None
    if plan.earlier is not None:
        earlier = OptunaStore.open(plan.earlier_url, plan.earlier, driver=False)
    return OptunaStore.open(plan.storage_url, plan.name, seed=plan.seeds[0], earlier=earlier, engine=plan.engine)


def _assets(config: CampaignConfig, plan: CampaignPlan) -> dict[str, str]:
    """Where what is generated lies; a rehearsal loads no model and reads no data, and makes none."""
    if plan.engine != "verl":
        return {}
    return assets.build(sources(config), writable(Path(config.runs) / "assets"))


def start_engine(plan: CampaignPlan, paths: dict[str, str]) -> Engine:
    if plan.engine == "rehearsal":
        from sweep.engines.rehearsal.engine import RehearsalEngine

        steps = plan.stages[0].budget.steps
        return RehearsalEngine(slots=max(1, plan.slots), base=plan.base, steps=steps)
    from sweep.adapters.nvml_probe import leased_memory
    from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
    from sweep.engines.by_measure import EngineByMeasure
    from sweep.engines.gpu_memory import GpuMemory
    from sweep.engines.verl.engine import VerlEngine
    from sweep.engines.verl.settings import gpus_of
    from sweep.engines.vllm.engine import RolloutEngine

    on_cpu = not plan.model.needs_gpu
    if plan.cluster_address:
        cluster = ClusterSettings(address=plan.cluster_address, unattended_seconds=plan.timeouts.unattended_seconds)
    elif on_cpu:
        cluster = ClusterSettings.without_gpus(max(1, plan.slots), plan.model.gpus)
    else:
        cluster = ClusterSettings()
    launcher, settings, probe = RayLauncher(cluster), _engine_settings(plan), None if on_cpu else leased_memory
    training = VerlEngine(
        launcher,
        settings,
        campaign=content_hash({"storage": plan.storage_url, "campaign": plan.name}, digits=8),
        locate=lambda overrides: assets.located(overrides, paths),
        memory_probe=probe,
    )
    rollout = RolloutEngine(
        launcher,
        slots=settings.slots,
        configuration=training.configuration,
        gpus_of=gpus_of,
        memory=GpuMemory(launcher, probe),
        variables=settings.variables,
    )
    return EngineByMeasure(training, rollout)


def _engine_settings(plan: CampaignPlan) -> EngineSettings:
    """Raises: ConfigError: if what generates on the CPU is not installed."""
    from sweep.engines.verl.environment import cpu_engine, cpu_vllm_engine, gpu_engine, inspect, named_vllm

    if not plan.model.needs_gpu and plan.base.get(keys.ROLLOUT_NAME) == "vllm":
        return cpu_vllm_engine(plan.slots, named_vllm(Path(plan.folder) / "names"))
    if not plan.model.needs_gpu:
        return cpu_engine(plan.slots)
    return gpu_engine(inspect(), plan.slots, plan.model.gpus)


def _observers(config: CampaignConfig, plan: CampaignPlan, store: Store, fleet: Fleet) -> list[Observer]:
    from sweep.adapters.frozen_files import FrozenFiles
    from sweep.adapters.mlflow_tracker import MlflowTracker
    from sweep.report.progress import progress_display

    folder = Path(plan.folder)
    tracker = MlflowTracker.open(plan.tracking_uri, plan.name, folder, store.find)
    observers: list[Observer] = [FrozenFiles(folder, store)]
    if plan.engine == "verl" and plan.model.needs_gpu:
        from sweep.adapters.gpu_nodes import on_cluster
        from sweep.adapters.hardware_observer import HardwareObserver
        from sweep.adapters.hardware_watch import HardwareWatch

        def watch() -> HardwareWatch:
            return HardwareWatch(on_cluster(), offer=tracker.system_metrics)

        limits = hardware_limits_of(config.guards)
        observers.append(HardwareObserver(watch, runtime_of=fleet.runtime_of, limits=limits))  # reads before a run ends
    return [*observers, tracker, progress_display(store)]


def _examiner(config: CampaignConfig, plan: CampaignPlan, paths: dict[str, str]) -> Examine:
    from sweep.engines.verl.screening import Examined, examine

    if plan.engine != "verl":
        return lambda trial, swept: Examined()
    settings, here = _engine_settings(plan), not plan.cluster_address
    limits = preflight_limits_of(config.preflight)

    def located(overrides: Overrides) -> Overrides:
        return assets.located(overrides, paths)

    def examined(trial: Trial, swept: frozenset[str]) -> Examined:
        folder = str(trial_folder(plan, trial).resolve())
        return examine(trial, folder, settings, located, here=here, swept=swept, limits=limits)

    return examined


def _base_trial(plan: CampaignPlan) -> Trial:
    return Trial(plan.base, plan.seeds[0], plan.stage(plan.wanted[0]).budget.steps)


def _refuse_impossible(plan: CampaignPlan, store: Store, examined: Examine) -> tuple[str, ...]:
    """Warnings about the configuration that the campaign starts from; none where nothing is left to run.

    Raises:
        ConfigError: if verl could not even run it, or none of the candidates of a stage to come.
    """
    frozen = {winner.stage: winner for winner in store.winners()}
    coming = [plan.stage(name) for name in plan.wanted if name not in frozen]
    remarks: list[str] = []
    start = examined(_base_trial(plan), frozenset())
    if start.obstacle:
        raise ConfigError(f"verl cannot run this configuration: {start.obstacle}")
    for stage in coming:
        base = plan.base_of(stage, [frozen[name] for name in plan.upstream_of(stage) if name in frozen])
        for group in samples(stage, base):
            _refuse_hopeless(plan, stage, base, group, examined)
        remarks += out_of_range(stage, base)
    return tuple(f"warning: {warning}" for warning in (*start.warnings, *remarks)) if coming else ()


def _refuse_hopeless(plan: CampaignPlan, stage: Stage, base: Overrides, group: Group, examined: Examine) -> None:
    """Raises: ConfigError: if verl could run none of these candidates."""
    first = ""
    for settings in group:
        trial = trial_of(stage, base, Proposal(settings, plan.seeds[0]))
        obstacle = examined(trial, searched_keys(stage)).obstacle
        if not obstacle:
            return
        first = first or obstacle
    if first:
        raise ConfigError(f"stage {stage.name} has no candidate that verl can run: {first}")


def _best_script(trial: Trial, plan: CampaignPlan, paths: dict[str, str]) -> str:
    from sweep.engines.verl.long_run import best_script

    return best_script(
        trial,
        _engine_settings(plan),
        locate=lambda o: assets.located(o, paths),
        name=plan.name,
        python=sys.executable,
        save_steps=plan.save_steps,
    )
