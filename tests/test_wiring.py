"""A campaign put together as a run does it: what it is watched by, and how it ends when closing goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep import wiring
from sweep.adapters import gpu_nodes
from sweep.adapters.optuna_store import OptunaStore
from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Finished
from sweep.core.overrides import NOTHING
from sweep.core.progress import Proposal
from sweep.core.trial import Trial
from sweep.engines.rehearsal.engine import RehearsalEngine
from sweep.engines.verl import screening
from sweep.engines.verl.engine import VerlEngine
from sweep.engines.verl.environment import Machine, cpu_engine, gpu_engine
from sweep.engines.verl.screening import Examined
from sweep.errors import BudgetSpent, ConfigError, EngineError
from sweep.fleet import Fleet
from sweep.health.preflight.limits import PreflightLimits
from sweep.ports import CampaignInfo
from tests.adapters.test_hardware_watch import ScriptedSampler, reading
from tests.adapters.test_mlflow_tracker import Reader
from tests.fakes import FakeClock, Script, ScriptedEngine
from tests.fakes_store import RecordingObserver

NEVER = 1e12
"""Unix time after which no reading lies: the observers' own clock runs while the test does."""


@pytest.mark.slow
def test_readings_of_a_gpu_campaign_end_up_in_mlflow_and_its_absent_gpus_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = compose(["model=smollm2-135m", f"runs={tmp_path}", "campaign=a1"])
    plan = to_plan(config)
    folder = Path(plan.folder)
    folder.mkdir(parents=True)
    samplers = {
        "10.0.0.1": ScriptedSampler([reading(NEVER), reading(NEVER + 2, utilisation_pct=55.0)]),
        "10.0.0.2": ScriptedSampler(problem="no NVIDIA driver answers"),
    }
    monkeypatch.setattr(gpu_nodes, "on_cluster", lambda: samplers)
    store = OptunaStore.open(plan.storage_url, plan.name)
    engine = ScriptedEngine(FakeClock(), lambda trial, cold: Script())
    fleet = Fleet(engine, folder_of=lambda t: folder / t.id, classify=lambda log: Cause(FailureClass.UNKNOWN))
    monkeypatch.setattr(fleet, "runtime_of", lambda trial_id: "sweep-a")
    stage, trial = plan.stages[0], Trial(plan.base, 1, 3)
    observers = wiring._observers(config, plan, store, fleet)
    for observer in observers:
        observer.campaign_started(CampaignInfo("a1", folder, (stage.name,)))
        observer.stage_started(stage)
    for observer in observers:
        observer.trial_started(stage, Proposal(NOTHING, 1), trial, folder / "trials" / trial.id)
    for observer in observers:
        observer.trial_ended(stage, trial, Finished(Curve()), None)
    for observer in observers:
        observer.campaign_ended(0)
    store.close()

    seen = Reader(folder)
    assert seen.history(seen.one("trial"), "system/gpu_0_utilization_percentage") == [(0, 90.0), (2, 55.0)]
    assert caplog.text.count("GPUs of 10.0.0.2 are not watched: no NVIDIA driver answers") == 1


def test_what_a_gpu_machine_lacks_is_said_and_a_cpu_lacks_nothing() -> None:
    class Launcher:
        def call(self, function, *arguments, gpus=0):  # type: ignore[no-untyped-def]
            return Machine()

    lacking = VerlEngine(Launcher(), gpu_engine(Machine())).notices()  # type: ignore[arg-type]
    assert [notice.split(":")[0] for notice in lacking] == [
        "flash-attn is not installed",
        "FlashInfer's sampler cannot be compiled here",
    ]
    assert VerlEngine(Launcher(), cpu_engine()).notices() == ()  # type: ignore[arg-type]
    assert RehearsalEngine(slots=1, base=NOTHING, steps=5).notices() == ()


def test_a_campaigns_trials_are_examined_by_its_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(screening, "examine", lambda *_, limits, **more: given.append(limits) or Examined())
    config = compose([f"runs={tmp_path}", "preflight.full_share=0.8"])
    plan = to_plan(config)
    wiring._examiner(config, plan, {})(Trial(plan.base, 1, 3), frozenset())
    assert given == [PreflightLimits(full_share=0.8)]


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> RecordingObserver:
    """The only one that campaigns of this test have."""
    observer = RecordingObserver()
    monkeypatch.setattr(wiring, "_observers", lambda *_: [observer])
    return observer


def rehearse(runs: Path, *asked: str) -> bool:
    small = ["engine=rehearsal", "model=qwen2.5-0.5b", "stage=minibatch", "budget.steps=8", "campaign=a1"]
    config = compose([*small, f"runs={runs}", *asked])
    return wiring.run_campaign(config, to_plan(config))


def stuck(*_: object) -> None:
    raise EngineError("gpu memory was not given back")


@pytest.mark.parametrize("part", [Fleet, RehearsalEngine])
def test_a_campaign_that_is_done_has_its_summary_and_ended_views_before_an_error_of_closing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observer: RecordingObserver, part: type
) -> None:
    monkeypatch.setattr(part, "close", stuck)
    with pytest.raises(EngineError, match="not given back"):
        rehearse(tmp_path)
    assert (tmp_path / "a1" / "summary.json").exists()
    assert observer.named("campaign_ended") == [(0,)]


@pytest.mark.parametrize("part", [Fleet, RehearsalEngine])
def test_an_error_of_closing_does_not_hide_what_ended_the_campaign(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    observer: RecordingObserver,
    part: type,
) -> None:
    monkeypatch.setattr(part, "close", stuck)
    with pytest.raises(BudgetSpent):
        rehearse(tmp_path, "budget.gpu_hours=1e-9")
    assert "not given back" in caplog.text
    assert observer.named("campaign_ended") == [(BudgetSpent.exit_code,)]


def test_views_are_ended_whatever_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observer: RecordingObserver
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Fleet, "close", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        rehearse(tmp_path)
    assert len(observer.named("campaign_ended")) == 1


def test_a_refused_driver_removes_its_folder_while_it_holds_the_campaign_and_not_that_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, folder = OptunaStore.close, tmp_path / "a1"

    def next_driver_begins(store: OptunaStore) -> None:
        assert not folder.exists()
        close(store)
        folder.mkdir()
        (folder / "optuna.db").touch()

    def too_small(engine: RehearsalEngine, trial: Trial) -> None:
        assert (folder / "optuna.db").exists()
        raise ConfigError("the cluster is too small")

    monkeypatch.setattr(OptunaStore, "close", next_driver_begins)
    monkeypatch.setattr(RehearsalEngine, "check", too_small)
    with pytest.raises(ConfigError, match="too small"):
        rehearse(tmp_path)
    assert (folder / "optuna.db").exists()


def examined_plan(*overrides: str):  # type: ignore[no-untyped-def]
    return to_plan(compose(["model=tiny", *overrides]))


class Nothing:
    """A store of a campaign that has frozen nothing, or those."""

    def __init__(self, *frozen: object) -> None:
        self._frozen = frozen

    def winners(self) -> tuple[object, ...]:
        return self._frozen


def test_a_stage_of_which_no_candidate_can_run_is_refused_before_anything_starts() -> None:
    def examined(trial: Trial, swept: frozenset[str]) -> Examined:
        return Examined("no KL term is on" if "algorithm.kl_ctrl.kl_coef" in swept else "")

    with pytest.raises(ConfigError, match="stage kl has no candidate that verl can run: no KL term is on"):
        wiring._refuse_impossible(examined_plan(), Nothing(), examined)  # type: ignore[arg-type]
    wiring._refuse_impossible(examined_plan("stage=minibatch"), Nothing(), examined)  # type: ignore[arg-type]


def test_one_candidate_that_can_run_is_enough_and_warnings_are_those_of_the_base() -> None:
    plan = examined_plan()
    largest = max(int(r.settings.get(keys.MAX_SEQS)) for r in plan.stage("token_budget").rule.ladders[0].rungs)  # type: ignore[union-attr,arg-type]

    def examined(trial: Trial, swept: frozenset[str]) -> Examined:
        too_small = keys.MAX_SEQS in swept and trial.overrides.get(keys.MAX_SEQS) != largest
        return Examined("too small" if too_small else "", () if swept else ("seldom wise",))

    assert wiring._refuse_impossible(plan, Nothing(), examined) == ("warning: seldom wise",)  # type: ignore[arg-type]
