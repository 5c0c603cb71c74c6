from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, simulate
from sweep.engines.rehearsal.engine import RehearsalEngine, RehearsalRuntime
from sweep.engines.rehearsal.surfaces import SURFACES
from sweep.errors import EngineError
from sweep.ports import Engine, Runtime, RuntimeEvent, RuntimeReady, Stepped, TrialEnded, TrialStarted

PLAIN = SURFACES["separable"]
TRIAL = Trial(NOTHING, 1, 60)


def drained(runtime: RehearsalRuntime) -> list[RuntimeEvent]:
    events: list[RuntimeEvent] = []
    while batch := runtime.events(1.0):
        events.extend(batch)
    return events


def started(tmp_path: Path, trial: Trial = TRIAL, *, reuse: bool = True) -> RehearsalRuntime:
    return RehearsalEngine(PLAIN).start(trial, tmp_path, reuse=reuse)


def test_it_is_an_engine_and_its_runtimes_are_runtimes(tmp_path: Path) -> None:
    engine: Engine = RehearsalEngine(PLAIN, Noise(cv=0.1), slots=2)
    runtime: Runtime = engine.start(TRIAL, tmp_path)
    assert runtime.serves(TRIAL)
    assert engine.versions()["surface"] == "separable"


def test_a_trial_is_ready_started_stepped_and_ended_in_order(tmp_path: Path) -> None:
    runtime = started(tmp_path)
    runtime.submit(TRIAL, tmp_path)
    events = drained(runtime)
    assert isinstance(events[0], RuntimeReady)
    assert events[1] == TrialStarted(TRIAL.id)
    assert [e.step for e in events if isinstance(e, Stepped)] == list(range(1, 61))
    assert events[-1] == TrialEnded(TRIAL.id, 60)


def test_the_rows_make_the_simulated_curve_under_verls_names(tmp_path: Path) -> None:
    runtime = started(tmp_path)
    runtime.submit(TRIAL, tmp_path)
    rows = [(e.step, e.metrics) for e in drained(runtime) if isinstance(e, Stepped)]
    assert Curve.from_rows(rows) == simulate(PLAIN, Noise(), TRIAL).curve


def test_a_second_trial_is_warm_and_logs_what_it_would_have_logged_alone(tmp_path: Path) -> None:
    other = Trial(Overrides.of({keys.ACTOR_LR: 2e-6}), 1, 60)
    runtime = started(tmp_path)
    runtime.submit(TRIAL, tmp_path)
    runtime.submit(other, tmp_path)
    events = drained(runtime)
    assert TrialStarted(other.id, warm=True) in events
    rows = [(e.step, e.metrics) for e in events if isinstance(e, Stepped) and e.trial_id == other.id]
    assert Curve.from_rows(rows) == simulate(PLAIN, Noise(), other).curve


def test_a_stop_ends_the_trial_early_and_names_its_reason(tmp_path: Path) -> None:
    runtime = started(tmp_path)
    runtime.submit(TRIAL, tmp_path)
    runtime.events(0.0)
    runtime.stop_trial(TRIAL.id, "no hope")
    ended = drained(runtime)[-1]
    assert isinstance(ended, TrialEnded)
    assert ended.stopped_by == "no hope"
    assert 0 < ended.last_step < 60


def test_running_out_of_memory_ends_the_trial_with_torchs_words_in_the_log(tmp_path: Path) -> None:
    big = Trial(Overrides.of({keys.MAX_BATCHED_TOKENS: 100_000}), 1, 60)
    runtime = started(tmp_path, big)
    runtime.submit(big, tmp_path)
    ended = drained(runtime)[-1]
    assert isinstance(ended, TrialEnded)
    assert (ended.last_step, ended.reusable) == (2, False)
    assert ended.error in runtime.log_text()


def test_other_rollout_settings_need_another_runtime(tmp_path: Path) -> None:
    runtime = started(tmp_path)
    assert runtime.serves(Trial(Overrides.of({keys.ACTOR_LR: 2e-6}), 3, 60))
    assert not runtime.serves(Trial(Overrides.of({keys.MAX_BATCHED_TOKENS: 16384}), 1, 60))


def test_a_runtime_without_reuse_serves_one_trial(tmp_path: Path) -> None:
    runtime = started(tmp_path, reuse=False)
    runtime.submit(TRIAL, tmp_path)
    drained(runtime)
    assert not runtime.serves(TRIAL)


def test_a_closed_runtime_is_silent_and_frees_its_slot(tmp_path: Path) -> None:
    engine = RehearsalEngine(PLAIN)
    runtime = engine.start(TRIAL, tmp_path)
    with pytest.raises(EngineError, match="1 slots"):
        engine.start(TRIAL, tmp_path)
    runtime.submit(TRIAL, tmp_path)
    engine.close()
    assert list(runtime.events(0.0)) == []
    assert engine.start(TRIAL, tmp_path).serves(TRIAL)


def test_the_truth_is_the_surfaces() -> None:
    assert RehearsalEngine(PLAIN).truth(NOTHING) == PLAIN.truth(NOTHING)
