"""What a campaign makes of failures: adopted, resumed, tried again, ruled out; over the scripted engine."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished
from sweep.core.trial import Trial
from sweep.errors import ConfigError, StageHalted
from sweep.fleet import Fleet
from sweep.ports import Checkpoint
from tests import own_rule
from tests.fakes import FakeClock, Script, ScriptedEngine
from tests.fakes_store import DriverKilled, MemoryStore
from tests.test_campaign import Bench, response


def test_a_trial_that_outlived_its_driver_is_gone_on_with_and_not_begun_again(tmp_path):
    whole = Bench(tmp_path / "whole", "stage=minibatch")
    expected = whole.run()
    bench = Bench(tmp_path, "stage=minibatch")
    with pytest.raises(DriverKilled):
        bench.run(die_after=1)  # the baseline's intent is all that was recorded
    bench.disk.held = False
    stage = bench.plan.stage("minibatch")
    (orphan,) = MemoryStore(bench.disk).orphans()
    bench.disk.held = False
    left = ScriptedEngine(FakeClock(), bench.script)
    runtime = left.start(orphan.record.trial, tmp_path)
    runtime.submit(orphan.record.trial, tmp_path)
    bench.left = [runtime]
    assert [w.choice.settings for w in bench.run()] == [w.choice.settings for w in expected]
    assert bench.store.attempts(stage, orphan.record.trial.id) == (None,)
    assert orphan.record.trial.id not in bench.trained()[1:]
    assert runtime.given[0] == orphan.record.trial


def test_a_trial_whose_driver_died_goes_on_from_its_checkpoint(tmp_path):
    bench = Bench(tmp_path, "stage=minibatch")
    with pytest.raises(DriverKilled):
        bench.run(die_after=1)
    bench.disk.held = False
    (orphan,) = MemoryStore(bench.disk).orphans()
    bench.disk.held = False
    bench.checkpoints = {orphan.record.trial.id: Checkpoint(12, "global_step_12")}
    bench.run()
    first = bench.engines[-1].started[0]
    assert (first.given[0].id, first.checkpoint) == (orphan.record.trial.id, Checkpoint(12, "global_step_12"))


def test_trials_that_fail_at_once_are_one_fault_and_do_not_break_the_campaign(tmp_path):
    met: set[str] = set()

    def script(trial, warm):
        if trial.id in met:
            return Script(metrics=response(trial))
        met.add(trial.id)
        return Script(dies_at=0, log="no route to host")

    bench = Bench(tmp_path, "stage=kl", "stages.kl.follows=[]", "stages.kl.budget.trials=6", script=script, slots=4)
    bench.run()
    assert all(r.finished for r in bench.store.records(bench.plan.stage("kl")))


def test_a_trial_that_ran_out_of_memory_keeps_the_sampler_from_larger_ones(tmp_path):
    limit = 20_000
    bench = Bench(
        tmp_path,
        "stage=kl",
        "stages.kl.follows=[]",
        "stages.kl.budget.trials=8",
        f"stages.kl.knobs.kl_coef.key={keys.MAX_BATCHED_TOKENS}",
        "stages.kl.knobs.kl_coef.low=1024",
        "stages.kl.knobs.kl_coef.high=65536",
        "+stages.kl.knobs.kl_coef.integer=true",
        "stages.kl.search.start=[]",
        script=lambda trial, warm: (
            Script(dies_at=0, log="CUDA out of memory") if tokens(trial) > limit else Script(metrics=response(trial))
        ),
    )
    bench.run()
    records = bench.store.records(bench.plan.stage("kl"))
    failed = [tokens(r.trial) for r in records if isinstance(r.outcome, Failed)]
    assert failed == sorted(failed, reverse=True)
    assert all(isinstance(r.outcome, Failed) is (tokens(r.trial) > limit) for r in records)
    assert len(records) == 8 and failed


def tokens(trial: Trial) -> int:
    return int(trial.overrides.get(keys.MAX_BATCHED_TOKENS))


@pytest.mark.parametrize(("hangs", "ends"), [(1, Finished), (2, Failed)])
def test_a_trial_that_hangs_is_tried_once_more_from_its_checkpoint(tmp_path, hangs: int, ends: type):
    fails = iter([True] * hangs)

    def script(trial, warm):
        quiet = trial.overrides.get(keys.LAM) == 0.95 and next(fails, False)
        return Script(hangs_at=5) if quiet else Script(metrics=response(trial))

    bench = Bench(tmp_path, script=script)
    bench.reuse = False
    bench.checkpoints = EveryTrial(Checkpoint(4, "global_step_4"))
    bench.run()
    (record,) = [
        r for r in bench.store.records(bench.plan.stage("lr_lambda")) if r.trial.overrides.get(keys.LAM) == 0.95
    ]
    assert isinstance(record.outcome, ends)
    attempts = [r for e in bench.engines for r in e.started if r.given[0] == record.trial]
    assert [r.checkpoint for r in attempts] == [None, Checkpoint(4, "global_step_4")]


class EveryTrial(dict):
    """The same checkpoint for every trial."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def get(self, key, default=None):
        return self._checkpoint


def test_a_rung_above_one_that_ran_out_of_memory_is_recorded_without_a_runtime(tmp_path):
    def script(trial, warm):
        if tokens(trial) >= 1024:
            return Script(dies_at=0, log="CUDA out of memory")
        return Script(metrics=response(trial))

    ladder = "stages.token_budget.ladder.ladders.token_budget"
    bench = Bench(
        tmp_path,
        "stage=token_budget",
        "stages.token_budget.follows=[]",
        "stages.token_budget.budget.trials=8",
        f"{ladder}.climb=false",
        script=script,
    )
    bench.run()
    by_tokens = {tokens(r.trial): r.outcome for r in bench.store.records(bench.plan.stage("token_budget"))}
    assert by_tokens[1024].failure_class is FailureClass.OOM_GPU
    assert by_tokens[2048].failure_class is FailureClass.INFEASIBLE_CONFIG and "gpu memory" in by_tokens[2048].message
    assert all(tokens(t) < 2048 for e in bench.engines for r in e.started for t in r.given)
    bench.run()  # with every wanted stage frozen, what ran out of memory in them is still known
    largest = next(r.trial for r in bench.store.records(bench.plan.stage("token_budget")) if tokens(r.trial) == 2048)
    assert bench.campaign._memory.rules_out(largest) is not None


OWN_OBJECTIVE = (
    "stage=kl",
    "stages.kl.follows=[]",
    "stages.kl.budget.trials=3",
    "stages.kl.objective=tests.own_rule:last_score",
)


def test_a_finished_trial_is_kept_where_the_users_objective_fails_and_not_run_again_once_that_is_mended(
    tmp_path, monkeypatch
):
    bench = Bench(tmp_path, *OWN_OBJECTIVE)
    stage = bench.plan.stage("kl")
    with monkeypatch.context() as broken:
        broken.setattr(own_rule, "last_score", lambda stage, finished: 1 / 0)
        for _ in range(2):  # as long as it is broken nothing more is trained
            with pytest.raises(ConfigError, match=r"objective tests\.own_rule:last_score raised ZeroDivisionError"):
                bench.run()
    (record,) = bench.store.records(stage)
    assert record.finished is not None and bench.trained() == [record.trial.id]
    (shown,) = bench.observer.named("trial_ended")
    assert (shown[1], shown[3]) == (record.trial, None)
    (winner,) = bench.run()
    assert winner.stage == "kl"
    assert len(bench.trained()) == len(set(bench.trained())) == 3


def test_what_ended_together_with_a_trial_that_stops_the_campaign_is_kept(tmp_path, monkeypatch):
    bench = Bench(tmp_path, *OWN_OBJECTIVE, "budget.seeds=2", "stages.kl.budget.trials=6", slots=2)
    wait = Fleet.wait

    def all_at_once(fleet, seconds):
        news = wait(fleet, seconds)
        while fleet._busy():
            news += wait(fleet, seconds)
        return news

    monkeypatch.setattr(Fleet, "wait", all_at_once)
    failures = iter([True])

    def once_broken(stage, finished):
        return 1 / 0 if next(failures, False) else original(stage, finished)

    original = own_rule.last_score
    monkeypatch.setattr(own_rule, "last_score", once_broken)
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        bench.run()
    records = bench.store.records(bench.plan.stage("kl"))
    assert [r.finished is not None for r in records] == [True, True]
    bench.run()
    assert len(bench.trained()) == len(set(bench.trained()))


@pytest.mark.parametrize("rule", ["search", "bracket"])
def test_scores_that_are_no_numbers_are_refused_and_without_any_finite_one_the_stage_halts(tmp_path, rule):
    asked = ("stage=kl", "stages.kl.follows=[]", "stages.kl.budget.trials=3", f"stages.kl.rule={rule}")
    with pytest.raises(ConfigError, match=r"objective tests\.own_rule:in_words must score in numbers, got .*high"):
        Bench(tmp_path / "words", *asked, "stages.kl.objective=tests.own_rule:in_words").run()
    with pytest.raises(StageHalted, match=r"tests\.own_rule:unknown gives no trial a finite score"):
        Bench(tmp_path / "unknown", *asked, "stages.kl.objective=tests.own_rule:unknown").run()
