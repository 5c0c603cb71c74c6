"""`EngineByMeasure` over two scripted engines: who starts what, who is closed, and one fleet over both."""

from __future__ import annotations

from pathlib import Path

from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.by_measure import EngineByMeasure
from sweep.fleet import Ended, Fleet
from tests.fakes import FakeClock, ScriptedEngine

TRAINED = Trial(Overrides.of({"a": 1}), 1, 2)
GENERATED = Trial(Overrides.of({"a": 1}), 1, 2, Measure.ROLLOUT)


def test_a_fleet_of_one_slot_closes_the_idle_verl_before_it_starts_vllm_and_the_other_way_round(tmp_path: Path) -> None:
    clock = FakeClock()
    training = ScriptedEngine(clock, same_base=lambda base, other: other.measure is Measure.TRAINING)
    rollout = ScriptedEngine(clock, same_base=lambda base, other: other.measure is Measure.ROLLOUT)
    engine = EngineByMeasure(training, rollout)
    fleet = Fleet(
        engine, folder_of=lambda t: tmp_path / t.id, classify=lambda log: Cause(FailureClass.UNKNOWN, ""), clock=clock
    )
    ends = []
    for trial, open_now in ((TRAINED, (1, 0)), (GENERATED, (0, 1)), (TRAINED, (1, 0))):
        fleet.submit(trial)
        while not (found := [e for e in fleet.wait(60.0) if isinstance(e, Ended)]):
            pass
        ends += found
        assert tuple(sum(not r.closed for r in e.started) for e in (training, rollout)) == open_now
    assert [e.trial for e in ends] == [TRAINED, GENERATED, TRAINED]
    assert all(isinstance(e.outcome, Finished) for e in ends)
    assert [r.base for r in rollout.started] == [GENERATED]
    engine.close()
    assert training.closed and rollout.closed and engine.versions() == {"scripted": "1"}
