"""The observer over a scripted watch: what lies in a trial's folder when it has ended."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.adapters.gpu_reading import GpuReading
from sweep.adapters.hardware_observer import FINDINGS_FILE, HardwareObserver, facts_of
from sweep.adapters.hardware_watch import TRACE_FILE, HardwareWatch
from sweep.core.curve import Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Proposal
from sweep.core.stage import Ladder, LadderRule, Rung, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.health.hardware import HardwareLimits
from sweep.ports import Observer
from tests.adapters.test_hardware_watch import ScriptedSampler, reading

FAILED = Failed(FailureClass.UNKNOWN, "it ended")


@pytest.fixture
def stage() -> Stage:
    rule = LadderRule((Ladder("l", (Rung("r", Overrides.of({"k": 1})),)),))
    return Stage("s", (), rule, objective="rollout_throughput", budget=StageBudget(trials=1, steps=5))


def observer_of(*readings: GpuReading, clock_seconds: float = 100.0) -> HardwareObserver:
    def opened() -> HardwareWatch:
        return HardwareWatch({"n": ScriptedSampler([], list(readings))}, interval_seconds=3600.0)

    return HardwareObserver(opened, clock=lambda: clock_seconds)


def play(observer: HardwareObserver, stage: Stage, folder: Path, settings: Overrides = NOTHING) -> None:
    trial = Trial(settings, seed=1, steps=5)
    observer.trial_started(stage, Proposal(NOTHING, 1), trial, folder)
    observer._watch.look()  # type: ignore[union-attr]  # the empty batch
    observer.trial_ended(stage, trial, FAILED, None)
    observer.campaign_ended(0)


def test_a_pattern_is_recorded_and_said(tmp_path: Path, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    idle = [reading(100.0 + 2 * i, utilisation_pct=10.0, free_gib=4.0) for i in range(6)]
    with caplog.at_level(logging.WARNING):
        play(observer_of(*idle), stage, tmp_path)
    content = json.loads((tmp_path / FINDINGS_FILE).read_text())
    assert (content["samples"], content["absent"]) == (6, [])
    assert [f["code"] for f in content["findings"]] == ["INPUT_OR_ROLLOUT_BOUND"]
    assert len((tmp_path / TRACE_FILE).read_text().splitlines()) == 6
    assert "utilisation under 30 % with memory full" in caplog.text


def test_the_thresholds_are_the_campaigns(tmp_path: Path, stage: Stage) -> None:
    idle = [reading(100.0 + 2 * i, utilisation_pct=10.0, free_gib=4.0) for i in range(6)]
    watch = HardwareWatch({"n": ScriptedSampler([], idle)}, interval_seconds=3600.0)
    observer = HardwareObserver(lambda: watch, clock=lambda: 100.0, limits=HardwareLimits(idle_pct=5.0))
    play(observer, stage, tmp_path)
    assert json.loads((tmp_path / FINDINGS_FILE).read_text())["findings"] == []


def test_without_gpus_the_record_says_so(tmp_path: Path, stage: Stage) -> None:
    play(HardwareObserver(lambda: HardwareWatch({})), stage, tmp_path)
    content = json.loads((tmp_path / FINDINGS_FILE).read_text())
    assert (content["samples"], content["findings"]) == (0, [])
    assert content["absent"] == ["no node of the cluster has GPUs"]


def test_a_folder_that_cannot_be_written_costs_the_record_and_not_the_trial(
    tmp_path: Path, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        play(observer_of(reading(100.0)), stage, tmp_path / "file" / "trial")
    assert caplog.text.count("is not recorded") == 2


def test_a_trial_that_was_never_started_ends_without_a_word(tmp_path: Path, stage: Stage) -> None:
    observer = observer_of()
    observer.trial_ended(stage, Trial(NOTHING, seed=1, steps=5), FAILED, None)
    observer.campaign_ended(0)
    assert list(tmp_path.iterdir()) == []


def test_it_is_an_observer_that_a_campaign_takes() -> None:
    observer: Observer = observer_of()
    observer.campaign_ended(0)


def test_the_facts_come_from_the_settings_and_the_curve() -> None:
    curve = Curve.from_rows([(i, {"timing_s/step": 10.0, "timing_s/gen": 6.0}) for i in (1, 2)])
    trial = Trial(NOTHING, seed=1, steps=2)
    keeping = replace(trial, overrides=Overrides.of({"actor_rollout_ref.rollout.free_cache_engine": False}))
    assert facts_of(trial, Finished(curve)).gen_share == pytest.approx(0.6)
    assert (facts_of(trial, FAILED).gen_share, facts_of(trial, FAILED).free_cache_engine) == (None, True)
    assert facts_of(keeping, FAILED).free_cache_engine is False
