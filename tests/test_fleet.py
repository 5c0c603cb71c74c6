"""The fleet over a scripted engine: who gets which runtime, and what each end of a trial becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.overrides import Overrides
from sweep.core.plan import Timeouts
from sweep.core.trial import Trial
from sweep.ending import Run
from sweep.errors import ConfigError, EngineError
from sweep.fleet import Ended, Fleet, FleetEvent, Started, Stepped
from sweep.ports import Checkpoint
from tests.fakes import FakeClock, Script, ScriptedEngine, ScriptedRuntime

LIMITS = Timeouts(start_seconds=100.0, step_seconds=20.0, end_seconds=5.0)


def trial(lr: float = 1e-6, tokens: int = 8192, steps: int = 3, seed: int = 0) -> Trial:
    return Trial(Overrides.of({"lr": lr, "tokens": tokens}), seed, steps)


def same_tokens(base: Trial, other: Trial) -> bool:
    return base.overrides.get("tokens") == other.overrides.get("tokens")


def by_log(log: str) -> Cause:
    found = "CUDA out of memory" in log
    return Cause(FailureClass.OOM_GPU, "the gpu ran out of memory") if found else Cause(FailureClass.UNKNOWN)


def fleet_of(engine: ScriptedEngine, *, reuse: bool = True, limits: Timeouts = LIMITS) -> Fleet:
    return Fleet(
        engine,
        folder_of=lambda t: Path("trials") / t.id,
        classify=by_log,
        timeouts=limits,
        clock=engine.clock,
        sleep=engine.clock.advance,
        reuse=reuse,
    )


def run(fleet: Fleet, *trials: Trial) -> list[FleetEvent]:
    """Every event until nothing is left."""
    for one in trials:
        fleet.submit(one)
    events: list[FleetEvent] = []
    for _ in range(10_000):
        news = fleet.wait(60.0)
        events += news
        if not news and not fleet._queue and not fleet._busy():
            return events
    raise AssertionError("the fleet does not come to an end")


def outcomes(events: list[FleetEvent]) -> list[object]:
    return [e.outcome for e in events if isinstance(e, Ended)]


def only_failure(events: list[FleetEvent]) -> Failed:
    (outcome,) = outcomes(events)
    assert isinstance(outcome, Failed)
    return outcome


def test_a_trial_that_reaches_its_last_step_is_finished_with_its_curve_and_time() -> None:
    engine = ScriptedEngine(FakeClock())
    events = run(fleet_of(engine), trial(steps=3))
    (outcome,) = outcomes(events)
    assert isinstance(outcome, Finished)
    assert outcome.curve.steps == (1, 2, 3)
    assert outcome.curve.score == pytest.approx((0.101, 0.102, 0.103))
    assert outcome.wall_seconds == pytest.approx(3.0)
    assert [e.step for e in events if isinstance(e, Stepped)] == [1, 2, 3]


def test_a_second_trial_of_the_same_base_is_served_warm_by_the_same_runtime() -> None:
    engine = ScriptedEngine(FakeClock())
    events = run(fleet_of(engine), trial(1e-6), trial(2e-6))
    assert [e.warm for e in events if isinstance(e, Started)] == [False, True]
    assert [e.start_seconds for e in events if isinstance(e, Started)] == pytest.approx([41.0, 1.0])
    assert len(engine.started) == 1


def test_each_trial_gets_its_own_folder() -> None:
    engine = ScriptedEngine(FakeClock())
    run(fleet_of(engine), trial(1e-6), trial(2e-6))
    assert engine.started[0].folders == [Path("trials") / trial(lr).id for lr in (1e-6, 2e-6)]


def test_a_mixed_queue_costs_one_start_for_each_base() -> None:
    engine = ScriptedEngine(FakeClock(), same_base=same_tokens)
    mixed = [trial(lr, tokens) for lr in (1e-6, 2e-6, 3e-6) for tokens in (8192, 16384)]
    events = run(fleet_of(engine), *mixed)
    assert len(engine.started) == 2
    assert [len(r.given) for r in engine.started] == [3, 3]
    assert {e.trial.id for e in events if isinstance(e, Ended)} == {t.id for t in mixed}


def test_what_a_loaded_runtime_serves_comes_first_and_the_rest_in_the_order_asked() -> None:
    engine = ScriptedEngine(FakeClock(), same_base=same_tokens, slots=2)
    fleet = fleet_of(engine)
    asked = [trial(lr, tokens) for lr in (1e-6, 2e-6) for tokens in (8192, 16384)]
    assert fleet.next_of(asked) == asked[:2]
    fleet.submit(trial(3e-6, 16384))
    while not any(isinstance(e, Ended) for e in fleet.wait(5.0)):
        pass
    assert fleet.next_of(asked) == [asked[1], asked[0]]
    assert fleet.next_of(asked[:1]) == asked[:1]


def test_the_old_runtime_is_closed_before_the_next_one_starts_on_a_single_slot() -> None:
    engine = ScriptedEngine(FakeClock(), same_base=same_tokens)
    run(fleet_of(engine), trial(tokens=8192), trial(tokens=16384))
    assert [r.closed for r in engine.started] == [True, False]


def test_two_slots_run_two_trials_at_once_and_room_says_so() -> None:
    engine = ScriptedEngine(FakeClock(), slots=2)
    fleet = fleet_of(engine)
    assert fleet.room() == 2
    fleet.submit(trial(1e-6))
    assert fleet.room() == 1
    fleet.submit(trial(2e-6))
    assert fleet.room() == 0
    run(fleet)
    assert [len(r.given) for r in engine.started] == [1, 1]
    assert fleet.room() == 2


def test_the_runtime_that_serves_a_trial_has_a_name_while_it_does() -> None:
    engine = ScriptedEngine(FakeClock(), slots=2)
    fleet = fleet_of(engine)
    one, other, waiting = trial(seed=1), trial(seed=2), trial(seed=3)
    for each in (one, other, waiting):
        fleet.submit(each)
    fleet.wait(0.0)
    assert [fleet.runtime_of(t.id) for t in (one, other, waiting)] == ["runtime-0", "runtime-1", ""]
    run(fleet)
    assert fleet.runtime_of(one.id) == ""


def test_the_runtime_of_a_trial_that_ends_while_another_thread_asks_is_told_or_none() -> None:
    class Ending:
        """A fake seat whose trial is there once and gone the next time."""

        runtime = ScriptedRuntime("runtime-0", trial(), Path(), ScriptedEngine(FakeClock()), reuse=True)
        runs = iter([Run(trial())])

        @property
        def run(self) -> Run | None:
            return next(self.runs, None)

    fleet = fleet_of(ScriptedEngine(FakeClock()))
    fleet._seats = [Ending()]  # type: ignore[list-item]
    assert [fleet.runtime_of(trial().id) for _ in range(2)] == ["runtime-0", ""]


def test_two_slots_are_faster_than_one() -> None:
    seconds = []
    for slots in (1, 2):
        engine = ScriptedEngine(FakeClock(), slots=slots)
        run(fleet_of(engine), *(trial(lr * 1e-6, steps=200) for lr in (1, 2, 3, 4)))
        seconds.append(engine.clock())
    assert seconds[1] < 0.7 * seconds[0]


def test_without_reuse_every_trial_has_a_runtime_of_its_own() -> None:
    engine = ScriptedEngine(FakeClock())
    events = run(fleet_of(engine, reuse=False), trial(1e-6), trial(2e-6))
    assert [(len(r.given), r.reuse, r.closed) for r in engine.started] == [(1, False, True)] * 2
    assert [e.warm for e in events if isinstance(e, Started)] == [False, False]


def test_a_runtime_that_dies_makes_a_failure_of_the_class_that_its_log_names() -> None:
    script = Script(dies_at=2, exit_code=1, log="torch.OutOfMemoryError: CUDA out of memory")
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: script)
    failure = only_failure(run(fleet_of(engine), trial(steps=5)))
    assert failure.failure_class is FailureClass.OOM_GPU
    assert failure.last_step == 2
    assert "at step 2 of 5" in failure.message and "exit code 1" in failure.message
    assert failure.log_path == str(engine.started[0].log_path) and failure.log_path in failure.message
    assert engine.started[0].closed


def test_exit_code_0_before_the_last_step_is_a_failure_that_names_both() -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(dies_at=4, exit_code=0))
    failure = only_failure(run(fleet_of(engine), trial(steps=5)))
    assert "step 4 of 5" in failure.message and "exit code 0" in failure.message


def test_a_loop_left_early_without_an_error_is_a_failure() -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(ends_at=4))
    failure = only_failure(run(fleet_of(engine), trial(steps=5)))
    assert failure.last_step == 4 and "step 4 of 5" in failure.message


@pytest.mark.parametrize("exit_code", [0, 1, -9, None])
def test_a_noisy_teardown_after_the_last_step_does_not_spoil_the_trial(exit_code: int | None) -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(dies_at=5, exit_code=exit_code))
    (outcome,) = outcomes(run(fleet_of(engine), trial(steps=5)))
    assert isinstance(outcome, Finished)


def test_a_guard_in_the_trainer_makes_a_diverged_trial_and_the_runtime_serves_on() -> None:
    def script(t: Trial, warm: bool) -> Script:
        return Script() if warm else Script(ends_at=2, stopped_by="gradient norm is not finite")

    engine = ScriptedEngine(FakeClock(), script=script)
    first, second = outcomes(run(fleet_of(engine), trial(1e-3, steps=5), trial(1e-6, steps=5)))
    assert isinstance(first, Diverged) and first.reason == "gradient norm is not finite"
    assert first.curve.steps == (1, 2)
    assert isinstance(second, Finished) and len(engine.started) == 1


def test_a_stop_request_ends_the_trial_after_its_step() -> None:
    engine = ScriptedEngine(FakeClock())
    fleet = fleet_of(engine)
    fleet.submit(trial(steps=50))
    events: list[FleetEvent] = []
    while not any(isinstance(e, Stepped) for e in events):
        events += fleet.wait(60.0)
    fleet.stop(trial(steps=50).id, "score collapsed")
    (outcome,) = outcomes(run(fleet))
    assert isinstance(outcome, Diverged) and outcome.reason == "score collapsed"
    assert outcome.curve.steps == (1, 2)


def test_a_stop_request_takes_a_waiting_trial_out_of_the_queue() -> None:
    engine = ScriptedEngine(FakeClock())
    fleet = fleet_of(engine)
    fleet.submit(trial(1e-6))
    fleet.submit(trial(2e-6))
    fleet.stop(trial(2e-6).id, "not needed any more")
    ended = [e for e in run(fleet) if isinstance(e, Ended)]
    assert {type(e.outcome) for e in ended if e.trial == trial(2e-6)} == {Diverged}
    assert [len(r.given) for r in engine.started] == [1]


def hanging(at: int) -> ScriptedEngine:
    return ScriptedEngine(FakeClock(), script=lambda t, warm: Script(hangs_at=at))


def test_a_silent_step_is_a_hang_and_ends_the_runtime() -> None:
    engine = hanging(2)
    failure = only_failure(run(fleet_of(engine), trial(steps=5)))
    assert failure.failure_class is FailureClass.HANG
    assert "within 20 s" in failure.message and "step 2 of 5" in failure.message
    assert engine.started[0].closed


def test_a_start_that_takes_too_long_is_a_hang_before_the_first_step() -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(never_ready=True))
    failure = only_failure(run(fleet_of(engine), trial()))
    assert failure.failure_class is FailureClass.HANG
    assert "did not start within 100 s" in failure.message
    assert engine.clock() == pytest.approx(100.0, abs=0.5)


@pytest.mark.parametrize(("step_seconds", "kind"), [(19.9, Finished), (20.3, Failed)])
def test_the_step_timeout_has_two_sides(step_seconds: float, kind: type) -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(step_seconds=step_seconds))
    (outcome,) = outcomes(run(fleet_of(engine), trial(steps=2)))
    assert isinstance(outcome, kind)


@pytest.mark.parametrize(("start_seconds", "kind"), [(99.9, Finished), (100.3, Failed)])
def test_the_start_timeout_has_two_sides(start_seconds: float, kind: type) -> None:
    engine = ScriptedEngine(FakeClock(), start_seconds=start_seconds)
    (outcome,) = outcomes(run(fleet_of(engine), trial(steps=2)))
    assert isinstance(outcome, kind)


def test_a_runtime_that_hangs_after_the_last_step_is_ended_and_the_trial_is_finished() -> None:
    engine = hanging(5)
    (outcome,) = outcomes(run(fleet_of(engine), trial(steps=5)))
    assert isinstance(outcome, Finished)
    assert engine.started[0].closed
    assert engine.clock() == pytest.approx(41.0 + 5.0 + LIMITS.end_seconds, abs=0.5)


def warm_only(bad: Script) -> ScriptedEngine:
    return ScriptedEngine(FakeClock(), script=lambda t, warm: bad if warm else Script())


@pytest.mark.parametrize(
    "bad",
    [
        Script(ends_at=2, error="CUDA error: an illegal memory access was encountered", reusable=False),
        Script(dies_at=2),
        Script(hangs_at=2),
        Script(reset_error="reset guard: actor weights differ from the snapshot"),
    ],
)
def test_a_warm_trial_that_takes_its_runtime_along_is_run_once_more_cold(bad: Script) -> None:
    engine = warm_only(bad)
    events = run(fleet_of(engine), trial(1e-6), trial(2e-6, steps=4))
    assert [type(o) for o in outcomes(events)] == [Finished, Finished]
    assert [r.reuse for r in engine.started] == [True, False]
    last = outcomes(events)[1]
    assert isinstance(last, Finished) and last.curve.steps == (1, 2, 3, 4)


def test_a_cold_run_after_a_warm_failure_is_the_last() -> None:
    def script(t: Trial, warm: bool) -> Script:
        return Script() if t == trial(1e-6) else Script(dies_at=2)

    engine = ScriptedEngine(FakeClock(), script=script)
    events = run(fleet_of(engine), trial(1e-6), trial(2e-6))
    assert [type(o) for o in outcomes(events)] == [Finished, Failed]
    assert len(engine.started) == 2


@pytest.mark.parametrize(
    ("bad", "starts"),
    [
        (Script(dies_at=2), [41.0, 1.0, 2.0 + 41.0]),
        (Script(reset_error="reset guard: actor weights differ from the snapshot"), [41.0, 1.0 + 41.0]),
    ],
)
def test_what_a_warm_attempt_took_in_vain_is_part_of_the_cold_start(bad: Script, starts: list[float]) -> None:
    events = run(fleet_of(warm_only(bad)), trial(1e-6), trial(2e-6))
    assert [e.start_seconds for e in events if isinstance(e, Started)] == pytest.approx(starts)
    assert [e.start_seconds for e in events if isinstance(e, Ended)] == [0.0, 0.0]


def test_a_start_that_comes_to_nothing_is_told_with_the_end_and_so_is_what_was_lost_before_it() -> None:
    def script(t: Trial, warm: bool) -> Script:
        return Script(dies_at=2) if warm else Script(never_ready=t != trial(1e-6))

    events = run(fleet_of(ScriptedEngine(FakeClock(), script=script)), trial(1e-6), trial(2e-6))
    assert [e.start_seconds for e in events if isinstance(e, Ended)] == pytest.approx([0.0, 2.0 + 100.0], abs=0.5)


def test_a_first_trial_whose_reset_guard_fails_is_run_without_a_reset() -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(reset_error="reset guard: lr is 0.1"))
    assert [type(o) for o in outcomes(run(fleet_of(engine), trial()))] == [Finished]
    assert [r.reuse for r in engine.started] == [True, False]


def test_a_failure_that_leaves_the_runtime_sound_is_not_run_again() -> None:
    engine = warm_only(Script(ends_at=0, error="ValueError: mini batch 64 exceeds batch 8", reusable=True))
    events = run(fleet_of(engine), trial(1e-6), trial(2e-6), trial(1e-6, seed=1))
    first, second, third = outcomes(events)
    assert isinstance(first, Finished) and isinstance(second, Failed) and isinstance(third, Failed)
    assert "mini batch 64" in second.message
    assert len(engine.started) == 1


def test_a_fresh_runtime_that_dies_is_not_run_again() -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(dies_at=1))
    only_failure(run(fleet_of(engine), trial()))
    assert len(engine.started) == 1


def test_an_idle_runtime_that_dies_is_replaced() -> None:
    engine = ScriptedEngine(FakeClock())
    fleet = fleet_of(engine)
    run(fleet, trial(1e-6))
    kill_while_idle(engine.started[0])
    assert fleet.wait(1.0) == []
    assert [type(o) for o in outcomes(run(fleet, trial(2e-6)))] == [Finished]
    assert len(engine.started) == 2 and engine.started[0].closed


def kill_while_idle(runtime: ScriptedRuntime) -> None:
    from sweep.ports import RuntimeGone

    runtime.dead = True
    runtime.agenda.append((0.0, RuntimeGone(-9)))


def test_a_refused_start_is_an_environment_fault_and_the_next_trial_goes_on() -> None:
    refused = trial(1e-6)
    engine = ScriptedEngine(FakeClock(), refuse={refused.id: "the cluster has 0 gpus, 1 is needed"})
    first, second = outcomes(run(fleet_of(engine), refused, trial(2e-6)))
    assert isinstance(first, Failed) and first.failure_class is FailureClass.ENV_FAULT
    assert "0 gpus" in first.message
    assert isinstance(second, Finished)


def test_wait_returns_at_once_when_there_is_nothing_to_wait_for() -> None:
    engine = ScriptedEngine(FakeClock())
    assert fleet_of(engine).wait(1000.0) == []
    assert engine.clock() == 0.0


def test_wait_comes_back_in_time_without_news() -> None:
    engine = hanging(0)
    fleet = fleet_of(engine)
    fleet.submit(trial())
    fleet.wait(41.0)
    before = engine.clock()
    assert fleet.wait(3.0) == []
    assert engine.clock() == pytest.approx(before + 3.0, abs=0.5)


def test_close_ends_every_runtime_and_may_be_called_twice() -> None:
    engine = ScriptedEngine(FakeClock(), slots=2)
    fleet = fleet_of(engine)
    fleet.submit(trial(1e-6, steps=100))
    fleet.submit(trial(2e-6, steps=100))
    fleet.wait(60.0)
    fleet.close()
    fleet.close()
    assert [r.closed for r in engine.started] == [True, True]
    assert fleet.wait(1.0) == []


def test_a_trial_that_is_to_wait_does_so_and_lets_others_that_are_there_run_first() -> None:
    engine = ScriptedEngine(FakeClock())
    fleet = fleet_of(engine)
    later, now = trial(1e-6), trial(2e-6)
    fleet.submit(later, wait_seconds=120.0)
    assert fleet.room() == 0
    events = run(fleet, now)
    assert [e.trial for e in events if isinstance(e, Ended)] == [now, later]
    assert engine.clock() == pytest.approx(120.0 + 1.0 + 3.0, abs=0.5)


def test_a_trial_goes_on_from_its_checkpoint_in_a_runtime_of_its_own_and_has_its_whole_curve() -> None:
    one, other = trial(1e-6), trial(2e-6, steps=10)
    engine = ScriptedEngine(FakeClock(), checkpoints={other.id: Checkpoint(6, "global_step_6")})
    fleet = fleet_of(engine)
    fleet.submit(one)
    fleet.submit(other, resume=True)
    events = run(fleet)
    last = outcomes(events)[1]
    assert isinstance(last, Finished) and last.curve.steps == tuple(range(1, 11))
    assert last.wall_seconds == pytest.approx(10.0)  # steps of a second; only four of them were run here
    assert [(r.reuse, r.checkpoint) for r in engine.started] == [(True, None), (False, Checkpoint(6, "global_step_6"))]


def test_a_resumed_trial_that_fails_took_its_own_steps_and_not_those_before_its_checkpoint() -> None:
    one = trial(steps=10)
    script = Script(dies_at=9, log="CUDA out of memory")
    checkpoints = {one.id: Checkpoint(6, "global_step_6")}
    fleet = fleet_of(ScriptedEngine(FakeClock(), script=lambda t, warm: script, checkpoints=checkpoints))
    fleet.submit(one, resume=True)
    assert only_failure(run(fleet)).wall_seconds == pytest.approx(3.0)


def test_without_a_checkpoint_a_trial_begins_anew_in_the_warm_runtime() -> None:
    engine = ScriptedEngine(FakeClock())
    fleet = fleet_of(engine)
    fleet.submit(trial(1e-6), resume=True)
    run(fleet, trial(2e-6))
    assert [(r.checkpoint, len(r.given)) for r in engine.started] == [(None, 2)]


def test_a_checkpoint_that_cannot_be_loaded_costs_a_start_not_the_trial() -> None:
    one = trial(steps=10)
    scripts = iter([Script(dies_at=None, never_ready=True), Script()])
    engine = ScriptedEngine(
        FakeClock(), script=lambda t, warm: next(scripts), checkpoints={one.id: Checkpoint(6, "global_step_6")}
    )
    fleet = fleet_of(engine)
    fleet.submit(one, resume=True)
    (outcome,) = outcomes(run(fleet))
    assert isinstance(outcome, Finished)
    assert [r.checkpoint for r in engine.started] == [Checkpoint(6, "global_step_6"), None]


def test_a_runtime_that_an_earlier_driver_left_is_adopted_with_all_its_steps_and_others_are_ended() -> None:
    clock = FakeClock()
    before = ScriptedEngine(clock, slots=2)
    alive, unwanted = trial(1e-6, steps=5), trial(2e-6, steps=5)
    for one in (alive, unwanted):
        before.start(one, Path("trials") / one.id).submit(one, Path("trials"))
    clock.advance(43.0)  # two steps were logged meanwhile, which nobody has read
    engine = ScriptedEngine(clock, slots=2, left=list(before.started))
    fleet = fleet_of(engine)
    assert fleet.adopt([alive, trial(9e-6)]) == {alive.id}
    assert fleet.room() == 1
    (outcome,) = outcomes(run(fleet))
    assert isinstance(outcome, Finished) and outcome.curve.steps == (1, 2, 3, 4, 5)
    assert outcome.wall_seconds == pytest.approx(5.0)  # not only the three that were left
    assert before.started[1].closed and not before.started[0].closed


class Stubborn(ScriptedRuntime):
    """A fake runtime that does not end."""

    def close(self) -> None:
        raise EngineError("gpu memory was not given back")


def test_a_runtime_that_does_not_end_is_an_error_only_after_its_trial_has_been_told(monkeypatch) -> None:
    monkeypatch.setattr("tests.fakes.ScriptedRuntime", Stubborn)
    fleet = fleet_of(ScriptedEngine(FakeClock()), reuse=False)
    fleet.submit(trial())
    events: list[FleetEvent] = []
    with pytest.raises(EngineError, match="not given back"):
        while True:
            events += fleet.wait(60.0)
    assert [type(o) for o in outcomes(events)] == [Finished]


def test_a_trial_that_the_cluster_could_never_take_is_infeasible() -> None:
    class Small(ScriptedEngine):
        def start(self, *arguments: object, **named: object) -> ScriptedRuntime:
            raise ConfigError("4 GPUs together on each node")

    failure = only_failure(run(fleet_of(Small(FakeClock())), trial()))
    assert failure.failure_class is FailureClass.INFEASIBLE_CONFIG and "4 GPUs" in failure.message


@pytest.mark.parametrize(
    ("exit_code", "log", "kind"),
    [
        (-9, "", "ENV_FAULT"),
        (137, "", "ENV_FAULT"),
        (None, "", "ENV_FAULT"),
        (-9, "CUDA out of memory", "OOM_GPU"),
        (1, "", "UNKNOWN"),
    ],
)
def test_a_process_that_was_killed_from_outside_met_an_environment_fault_unless_memory_ran_out(
    exit_code: int | None, log: str, kind: str
) -> None:
    engine = ScriptedEngine(FakeClock(), script=lambda t, warm: Script(dies_at=2, exit_code=exit_code, log=log))
    assert only_failure(run(fleet_of(engine), trial(steps=5))).failure_class is FailureClass[kind]


def test_a_refused_trial_is_judged_by_its_own_error_and_not_by_what_earlier_trials_left_on_the_console() -> None:
    script = Script(
        ends_at=0, error="ValueError: mini batch 64 exceeds batch 8", reusable=True, log="CUDA out of memory"
    )
    (ended,) = outcomes(run(fleet_of(ScriptedEngine(FakeClock(), script=lambda t, warm: script)), trial()))
    assert isinstance(ended, Failed) and ended.failure_class is FailureClass.UNKNOWN
    broken = Script(ends_at=0, error="the engine is dead", reusable=False, log="CUDA out of memory")
    (ended,) = outcomes(run(fleet_of(ScriptedEngine(FakeClock(), script=lambda t, warm: broken), reuse=False), trial()))
    assert isinstance(ended, Failed) and ended.failure_class is FailureClass.OOM_GPU
