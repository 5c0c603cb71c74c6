"""A whole campaign over the scripted engine: four stages, freezing, resuming, failures, and a kill after any event."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from sweep.campaign import Campaign, trial_folder
from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.core.failure import Cause, FailureClass
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.plan import found_by
from sweep.core.trial import Trial
from sweep.errors import BudgetSpent, ConfigError, EngineError, StageHalted
from sweep.fleet import Fleet
from sweep.ports import Checkpoint
from sweep.purse import Purse
from sweep.report.failures import ended_badly
from sweep.report.summary import best_settings
from tests.fakes import FakeClock, Script, ScriptedEngine, ScriptedRuntime, flat_metrics
from tests.fakes_store import Disk, DriverKilled, MemoryStore, RecordingObserver

BASE = (
    f"{keys.ACTOR_LR}=5e-4",
    f"{keys.LAM}=0.97",
    f"{keys.MINI_BATCH}=16",
    f"{keys.TRAIN_BATCH}=32",
    f"{keys.ACTOR_MICRO_BATCH}=8",
    f"{keys.MAX_BATCHED_TOKENS}=512",
    f"{keys.MAX_SEQS}=8",
)
SETTINGS = (
    "model=tiny",
    "confirm.seeds=0",
    "stages.minibatch.rule=eta",
    "stages.kl.rule=search",
    "stages.lr_lambda.rule=ladder",
    "budget.steps=20",
    "budget.seeds=1",
    "budget.warmup_steps=2",
    "stages.kl.budget.trials=3",
    "stages.token_budget.ladder.ladders.token_budget.points=[[256,4],[512,16],[1024,32],[2048,64]]",
    "stages.lr_lambda.budget.trials=8",
    "stages.lr_lambda.ladder.ladders.lr.multiples=[0.5,1.0,1.5,2.0]",
    "stages.lr_lambda.ladder.ladders.lam.points=[[0.95],[0.97],[0.99]]",
)


@cache
def planned(*overrides: str, verl: tuple[str, ...] = ()):
    settings = ",".join(f'"{line}"' for line in (*BASE, *verl))
    return to_plan(compose([*SETTINGS, f"verl=[{settings}]", *overrides]))


class Bench:
    """A campaign with its scripted surroundings; `again` is the same command once more."""

    def __init__(self, tmp_path: Path, *overrides: str, script=None, slots: int = 1) -> None:
        self.plan = replace(planned(*overrides), folder=str(tmp_path), slots=slots)
        self.disk = Disk()
        self.observer = RecordingObserver()
        self.script = script or (lambda trial, warm: Script(metrics=response(trial)))
        self.slots = slots
        self.gpu_hours: float | None = None
        self.purse = Purse()
        self.engines: list[ScriptedEngine] = []
        self.reuse = True
        self.left: list[ScriptedRuntime] = []
        self.checkpoints: dict[str, Checkpoint] = {}

    def run(self, die_after: int | None = None):
        self.store = MemoryStore(self.disk, die_after=die_after)
        clock = FakeClock()
        engine = ScriptedEngine(clock, self.script, slots=self.slots, checkpoints=self.checkpoints, left=self.left)
        self.engines.append(engine)
        fleet = Fleet(
            engine,
            folder_of=lambda t: trial_folder(self.plan, t),
            classify=lambda log: Cause(class_of(log), log),
            clock=clock,
            sleep=clock.advance,
            reuse=self.reuse,
        )
        self.purse = Purse(self.gpu_hours, clock=clock)
        campaign = self.campaign = Campaign(
            self.plan,
            store=self.store,
            fleet=fleet,
            observers=[self.observer],
            purse=self.purse,
        )
        try:
            return campaign.run()
        finally:
            fleet.close()
            if die_after is None:
                self.store.close()

    def trained(self) -> list[str]:
        return [t.id for e in self.engines for r in e.started for t in r.given]


def class_of(log: str) -> FailureClass:
    if "out of memory" in log:
        return FailureClass.OOM_GPU
    return FailureClass.SOFTWARE_BUG if "bug" in log else FailureClass.ENV_FAULT


def response(trial: Trial):
    """Reward that depends on every knob, so that each stage has something to find."""
    lr, lam = trial.overrides.get(keys.ACTOR_LR), trial.overrides.get(keys.LAM)
    gain = 0.3 * (1.5 if lr == 7.5e-4 else 1.0) * (1.2 if lam == 0.95 else 1.0)
    band = trial.overrides.get(keys.KL_TYPE) == "band"
    sequences = trial.overrides.get(keys.MAX_SEQS)

    def metrics(step: int) -> dict[str, float]:
        score = 0.1 + gain * step / trial.steps + (0.1 if band else 0.0)
        rate = {8: 100.0, 16: 120.0, 32: 140.0, 64: 130.0}.get(int(sequences), 90.0)
        return flat_metrics(step) | {"critic/score/mean": score, "sweep/rollout_tokens_per_s": rate}

    return metrics


def test_four_stages_freeze_four_winners_each_on_the_one_before(tmp_path):
    bench = Bench(tmp_path)
    winners = bench.run()
    assert [w.stage for w in winners] == ["minibatch", "kl", "token_budget", "lr_lambda"]
    by_stage = {w.stage: w.choice.settings for w in winners}
    assert by_stage["kl"].get(keys.KL_TYPE) == "band"
    assert by_stage["token_budget"].get(keys.MAX_BATCHED_TOKENS) == 1024
    assert by_stage["lr_lambda"].get(keys.ACTOR_LR) == 7.5e-4
    assert by_stage["lr_lambda"].get(keys.LAM) == 0.95
    last = next(r for r in reversed(bench.store.records(bench.plan.stage("lr_lambda"))))
    assert last.trial.overrides.get(keys.KL_TYPE) == "band"
    assert last.trial.overrides.get(keys.MAX_BATCHED_TOKENS) == 1024


def test_no_trial_is_run_twice_so_a_stages_baseline_is_the_winner_before_it(tmp_path):
    bench = Bench(tmp_path)
    bench.run()
    trained = bench.trained()
    assert len(trained) == len(set(trained))
    records = [r for s in bench.plan.stages for r in bench.store.records(s)]
    assert len(records) > len(trained)


def test_the_same_command_again_runs_nothing(tmp_path):
    bench = Bench(tmp_path)
    first = bench.run()
    before = len(bench.trained())
    assert bench.run() == first
    assert len(bench.trained()) == before


def test_a_changed_base_is_refused_and_the_change_is_named(tmp_path):
    bench = Bench(tmp_path)
    bench.run()
    bench.plan = planned(verl=("algorithm.gamma=0.9",))
    with pytest.raises(ConfigError, match=r"algorithm\.gamma None -> 0\.9"):
        bench.run()


def test_two_slots_give_the_same_winners_as_one(tmp_path):
    one, two = Bench(tmp_path / "1"), Bench(tmp_path / "2", slots=2)
    settings = [w.choice.settings for w in one.run()]
    assert [w.choice.settings for w in two.run()] == settings


@pytest.mark.parametrize("slots", [1, 2])
def test_a_driver_killed_after_any_write_resumes_to_the_same_winners_and_repeats_nothing(tmp_path, slots):
    whole = Bench(tmp_path, slots=slots)
    expected = [w.choice.settings for w in whole.run()]
    for writes in range(1, whole.disk.writes):
        bench = Bench(tmp_path, slots=slots)
        with pytest.raises(DriverKilled):
            bench.run(die_after=writes)
        bench.disk.held = False
        finished = {i for kept in bench.disk.stages.values() for i, one in kept.items() if one.record.finished}
        before = len(bench.trained())
        assert [w.choice.settings for w in bench.run()] == expected, f"killed after write {writes}"
        assert not finished & set(bench.trained()[before:]), f"killed after write {writes}"


def test_an_environment_fault_is_tried_again_and_does_not_use_the_budget(tmp_path):
    failures = iter([True, False])

    def script(trial, warm):
        if next(failures, False):
            return Script(dies_at=3, log="connection reset")
        return Script(metrics=response(trial))

    bench = Bench(tmp_path, "stage=minibatch", script=script)
    bench.run()
    seconds = [e.clock() for e in bench.engines]
    smooth = Bench(tmp_path / "smooth", "stage=minibatch")
    smooth.run()
    lost = 40.0 + 1.0 + 3.0  # its start, reset and steps
    assert seconds[0] - smooth.engines[0].clock() == pytest.approx(lost + 5.0, abs=0.5)
    stage = bench.plan.stage("minibatch")
    assert all(r.finished for r in bench.store.records(stage))


def test_three_equal_environment_faults_without_a_step_stop_the_campaign(tmp_path):
    bench = Bench(tmp_path, script=lambda t, w: Script(dies_at=0, log="no route to host"))
    with pytest.raises(EngineError, match="no route to host"):
        bench.run()
    (engine,) = bench.engines
    assert len(engine.started) == 3
    assert engine.clock() == pytest.approx(3 * 41.0 + 5.0 + 30.0, abs=1.0)


def test_a_bug_in_one_candidate_is_recorded_and_the_campaign_goes_on(tmp_path):
    def script(trial, warm):
        if trial.overrides.get(keys.LAM) == 0.99:
            return Script(dies_at=5, log="a bug")
        return Script(metrics=response(trial))

    bench = Bench(tmp_path, script=script)
    assert len(bench.run()) == 4
    outcomes = [r.outcome for r in bench.store.records(bench.plan.stage("lr_lambda"))]
    assert sum(isinstance(o, Failed) for o in outcomes) == 1
    assert sum(isinstance(o, Finished) for o in outcomes) >= 4


def test_a_flat_baseline_halts_the_first_stage(tmp_path):
    bench = Bench(tmp_path, script=lambda t, w: Script(metrics=lambda s: flat_metrics(s) | {"critic/score/mean": 0.2}))
    with pytest.raises(StageHalted, match="gained"):
        bench.run()


def test_a_trial_that_cannot_run_costs_no_runtime_and_is_recorded_as_infeasible(tmp_path):
    bench = Bench(tmp_path)
    clock = FakeClock()
    engine = ScriptedEngine(clock, bench.script)
    fleet = Fleet(
        engine, folder_of=lambda t: tmp_path, classify=lambda log: Cause(FailureClass.UNKNOWN, log), clock=clock
    )
    store = MemoryStore()
    campaign = Campaign(
        bench.plan,
        store=store,
        fleet=fleet,
        screen=lambda t: "lam must be below 0.98" if t.overrides.get(keys.LAM) == 0.99 else "",
    )
    assert len(campaign.run()) == 4
    given = [t for r in engine.started for t in r.given]
    assert all(t.overrides.get(keys.LAM) != 0.99 for t in given)
    failed = [r.outcome for s in bench.plan.stages for r in store.records(s) if isinstance(r.outcome, Failed)]
    assert [f.failure_class for f in failed] == [FailureClass.INFEASIBLE_CONFIG]


SHIPPED = ("confirm.seeds=2", *(f"stages.{name}.rule=bracket" for name in ("minibatch", "kl", "lr_lambda")))


def test_the_shipped_rules_end_in_a_confirmation_on_seeds_that_no_stage_used(tmp_path):
    bench = Bench(tmp_path, *SHIPPED)
    winners = {w.stage: w for w in bench.run()}
    last = winners["confirm"]
    found = found_by(w for name, w in winners.items() if name != "confirm")
    assert last.choice.settings == found
    assert last.choice.reason.startswith("looked +")
    records = bench.store.records(bench.plan.stage("confirm"))
    assert {r.trial.overrides for r in records} == {bench.plan.base, bench.plan.base.merged(found)}
    searched = {r.trial.seed for s in bench.plan.stages[:-1] for r in bench.store.records(s)}
    assert not searched & {r.trial.seed for r in records}
    assert len(records) == 4


def test_a_second_walk_of_the_mini_batch_starts_from_its_winner_under_the_last_stages_settings(tmp_path):
    bench = Bench(tmp_path, *SHIPPED, "confirm.retest=true")
    winners = {w.stage: w for w in bench.run()}
    assert list(winners)[-2:] == ["retest", "confirm"]
    assert winners["retest"].base.get(keys.MINI_BATCH) == winners["minibatch"].choice.settings.get(keys.MINI_BATCH, 16)
    assert winners["retest"].base.get(keys.LAM) == winners["lr_lambda"].choice.settings.get(keys.LAM, 0.97)
    assert len(bench.store.records(bench.plan.stage("retest"))) <= 4


def test_a_winner_that_new_seeds_find_worse_is_not_what_the_campaign_ends_with(tmp_path):
    def script(trial: Trial, warm: bool) -> Script:
        changed = trial.overrides != bench.plan.base
        gain = 0.3 * (0.5 if trial.seed > 1000 else 1.4) if changed else 0.3

        def metrics(step: int) -> dict[str, float]:
            return flat_metrics(step) | {"critic/score/mean": 0.1 + gain * step / trial.steps}

        return Script(metrics=metrics)

    bench = Bench(tmp_path, *SHIPPED, script=script)
    winners = bench.run()
    assert "worse than the base, which is kept" in winners[-1].choice.reason
    assert best_settings(bench.plan, list(winners)) == bench.plan.base


def test_other_numbers_of_new_seeds_make_the_confirmation_stale_and_nothing_else(tmp_path):
    bench = Bench(tmp_path, *SHIPPED)
    bench.run()
    bench.plan = replace(planned(*SHIPPED, "confirm.seeds=3"), folder=str(tmp_path))
    with pytest.raises(ConfigError, match="stage confirm is frozen"):
        bench.run()


def test_a_frozen_winner_stays_when_its_stage_would_search_otherwise_and_that_is_said(tmp_path, caplog):
    bench = Bench(tmp_path)
    winners = bench.run()
    assert caplog.text == ""
    bench.plan = replace(
        planned("stages.kl.budget.trials=4", "stages.token_budget.ladder.tie_margin=0.05"), folder=str(tmp_path)
    )
    assert bench.run() == winners
    kl, token_budget = (record.getMessage() for record in caplog.records)
    assert "stage kl stays frozen" in kl and "(budget.trials 3 -> 4)" in kl
    assert "(rule.tie_margin 0.02 -> 0.05)" in token_budget and "sweep.freeze unfreeze token_budget" in token_budget


def test_gpu_hours_stop_the_campaign_and_more_of_them_go_on_where_it_ended(tmp_path):
    whole = Bench(tmp_path / "whole", *SHIPPED)
    whole.run()
    bench = Bench(tmp_path / "part", *SHIPPED)
    bench.gpu_hours = 100 / 3600
    with pytest.raises(BudgetSpent, match=r"budget.gpu_hours=0.0277778 ends the campaign: .* are spent") as caught:
        bench.run()
    assert caught.value.exit_code == 5
    before = len(bench.trained())
    assert 0 < before < len(whole.trained())
    bench.gpu_hours = None
    bench.run()
    assert bench.trained() == whole.trained()


def test_a_stage_alone_refuses_a_winner_before_it_that_stands_on_something_else(tmp_path):
    bench = Bench(tmp_path, "stage=minibatch")
    bench.run()
    bench.plan = replace(planned("stage=kl", verl=("algorithm.gamma=0.9",)), folder=str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"stage minibatch is frozen, but .*algorithm\.gamma None -> 0\.9.*unfreeze minibatch"
    ):
        bench.run()


def test_an_unfrozen_stage_is_frozen_again_from_its_trials_and_those_on_top_of_it_stand(tmp_path):
    bench = Bench(tmp_path)
    first = bench.run()
    before = len(bench.trained())
    store = MemoryStore(bench.disk)
    store.unfreeze("minibatch")
    store.close()
    assert {w.stage for w in bench.run()} == {w.stage for w in first}
    assert len(bench.trained()) == before


def losing(script_gain):
    """Candidates gain that share of what the baseline does; every run has a little luck of its own."""

    def script(trial: Trial, warm: bool) -> Script:
        own = trial.overrides.get(keys.MINI_BATCH) != 16
        luck = 1 + 0.01 * ((int(trial.id, 16) % 7) - 3) / 3

        def metrics(step: int) -> dict[str, float]:
            gain = 0.4 * luck * (script_gain if own else 1.0)
            return flat_metrics(step) | {"critic/score/mean": 0.1 + gain * step / trial.steps}

        return Script(metrics=metrics)

    return script


SEVERAL = ("stage=minibatch", "budget.seeds=4", "budget.steps=40", "stages.minibatch.budget.trials=6")


def test_a_running_trial_that_is_certain_to_lose_is_given_up_half_way_and_is_no_failure(tmp_path):
    bench = Bench(tmp_path, *SEVERAL, "stages.minibatch.rule=bracket", script=losing(0.3))
    (winner,) = bench.run()
    records = bench.store.records(bench.plan.stage("minibatch"))
    given_up = [r.outcome for r in records if isinstance(r.outcome, Diverged)]
    assert given_up
    assert all(o.given_up and 20 <= o.curve.last_step < 40 and "can still reach" in o.reason for o in given_up)
    assert winner.choice.settings.get(keys.MINI_BATCH, 16) == 16
    assert not any(ended_badly(r) for r in records)


@pytest.mark.parametrize("settings", [("budget.early_stop=false",), ("budget.seeds=1",)])
def test_nothing_is_given_up_where_it_is_switched_off_or_no_spread_was_measured(tmp_path, settings):
    bench = Bench(tmp_path, *SEVERAL, "stages.minibatch.rule=bracket", *settings, script=losing(0.3))
    bench.run()
    assert all(r.finished for r in bench.store.records(bench.plan.stage("minibatch")))


def test_a_sampler_that_only_repeats_itself_is_asked_no_more_and_the_stage_ends(tmp_path):
    bench = Bench(
        tmp_path,
        "stage=kl",
        "stages.kl.follows=[]",
        "stages.kl.budget.trials=9",
        f"stages.kl.knobs.kl_coef.key={keys.MAX_SEQS}",
        "stages.kl.knobs.kl_coef.low=1",
        "stages.kl.knobs.kl_coef.high=2",
        "+stages.kl.knobs.kl_coef.integer=true",
        "stages.kl.search.start=[]",
    )
    (winner,) = bench.run()
    assert len(bench.trained()) == 3
    assert winner.stage == "kl"


def test_trials_of_another_length_or_base_are_no_evidence_and_nothing_of_theirs_is_lost(tmp_path):
    flat = Script(metrics=lambda step: flat_metrics(step) | {"critic/score/mean": 0.2})
    bench = Bench(tmp_path, "stage=minibatch", script=lambda t, w: flat)
    with pytest.raises(StageHalted, match="gained"):
        bench.run()
    short = set(bench.trained())
    bench.script = lambda trial, warm: Script(metrics=response(trial))
    bench.plan = replace(planned("stage=minibatch", "budget.steps=30"), folder=str(tmp_path))
    (longer,) = bench.run()
    assert not short & set(longer.choice.trial_ids)
    assert {t.steps for e in bench.engines[1:] for r in e.started for t in r.given} == {30}
    kept = {r.trial.id for r in bench.store.records(bench.plan.stage("minibatch"))}
    assert short < kept


def test_an_interrupted_stage_compares_nothing_with_a_baseline_of_other_settings(tmp_path):
    bench = Bench(tmp_path, "stage=minibatch")
    with pytest.raises(DriverKilled):
        bench.run(die_after=3)  # the baseline has finished or runs
    bench.disk.held = False
    bench.plan = replace(
        planned("stage=minibatch", verl=("actor_rollout_ref.actor.clip_ratio=0.3",)), folder=str(tmp_path)
    )
    (winner,) = bench.run()
    evidence = [r for r in bench.store.records(bench.plan.stage("minibatch")) if r.trial.id in winner.choice.trial_ids]
    assert {r.trial.overrides.get("actor_rollout_ref.actor.clip_ratio") for r in evidence} == {0.3}


def test_a_start_value_that_is_the_base_s_own_is_the_baseline_and_not_run_twice(tmp_path):
    bench = Bench(tmp_path, "stage=kl", "stages.kl.follows=[]", "stages.kl.fixed=[]")
    (winner,) = bench.run()
    assert winner.stage == "kl"
    assert len(bench.trained()) == len(set(bench.trained()))


def test_what_failed_for_the_machine_s_fault_runs_once_more_when_the_command_is_given_again(tmp_path):
    dead = Script(dies_at=0, log="a bug somewhere", exit_code=1)
    bench = Bench(tmp_path, "stage=minibatch", script=lambda t, w: dead)
    for _ in range(2):
        with pytest.raises(StageHalted, match="the baseline did not finish"):
            bench.run()
    bench.script = lambda trial, warm: Script(metrics=response(trial))
    (winner,) = bench.run()
    assert winner.stage == "minibatch"


def test_a_point_that_ran_out_of_memory_is_not_tried_again_by_the_same_command(tmp_path):
    bench = Bench(tmp_path, "stage=minibatch", script=lambda t, w: Script(dies_at=0, log="out of memory", exit_code=1))
    for _ in range(2):
        with pytest.raises(StageHalted, match="the baseline did not finish"):
            bench.run()
    assert len([t for t in bench.engines[1].started]) == 0


def test_on_one_slot_everything_that_a_warm_death_costs_is_paid(tmp_path):
    deaths = iter([True])

    def script(trial, warm):
        return Script(dies_at=15, log="a bug") if warm and next(deaths, False) else Script(metrics=response(trial))

    bench = Bench(tmp_path, "stage=minibatch", script=script)
    bench.run()
    assert len(bench.trained()) == len(set(bench.trained())) + 1
    assert bench.purse.spent_seconds == pytest.approx(bench.engines[0].clock(), abs=1.0)
    assert bench.purse.gpu_hours == bench.purse.spent_seconds / 3600
