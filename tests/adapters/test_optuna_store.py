"""`sweep.adapters.optuna_store` beyond the contract: what Optuna sees, and what happens when things break."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from sweep.adapters.lease import Holder, Lease
from sweep.adapters.optuna_store import OptunaStore, campaigns
from sweep.adapters.proposer import Proposer, worth_learning
from sweep.adapters.shelf import Entry
from sweep.adapters.storage import open_storage
from sweep.adapters.study_log import StudyLog
from sweep.adapters.trial_attributes import PART_CHARACTERS
from sweep.core.curve import METRICS, Curve
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome, to_json
from sweep.core.overrides import Overrides
from sweep.core.progress import Record
from sweep.core.stage import Knob, SearchRule
from sweep.core.winner import Score
from sweep.errors import ConfigError, StoreError
from tests.adapters.store_stages import KL, failed, finished, kl, minibatch, proposal, score, trial
from tests.postgres_server import PostgresServer


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/optuna.db"


def studied(url: str, stage: str = "kl") -> list[optuna.trial.FrozenTrial]:
    """The stage's trials as Optuna itself reads them."""
    return list(optuna.load_study(study_name=f"a1/{stage}", storage=open_storage(url)).get_trials())


def run(store: OptunaStore, value: float, result: float | None) -> None:
    """One trial from intent to end, failed without a result."""
    store.intend(kl, proposal({KL: value}), trial({KL: value}))
    if result is None:
        store.settle(kl, trial({KL: value}), failed(), None)
    else:
        store.settle(kl, trial({KL: value}), finished(result), score(result))


def test_optuna_sees_params_values_and_failures_without_a_value(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(0.5), score(0.5))
    run(store, 0.002, None)
    diverged = Diverged(finished().curve, "kl above 1")
    store.intend(kl, proposal({KL: 0.003}), trial({KL: 0.003}))
    store.settle(kl, trial({KL: 0.003}), diverged, None)
    store.intend(kl, proposal({KL: 0.004}), trial({KL: 0.004}))
    store.close()
    seen = studied(url)
    assert [t.params for t in seen] == [{KL: 0.001}, {KL: 0.002}, {KL: 0.003}, {KL: 0.004}]
    assert [t.state for t in seen] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING]
    assert [t.value for t in seen] == [0.5, None, None, None]
    assert seen[0].user_attrs["score"]["parts"] == {"gain": 0.5, "step_seconds": 2.0}
    assert seen[1].user_attrs["outcome"]["failure_class"] == "gpu out of memory"
    assert seen[2].user_attrs["outcome"]["reason"] == "kl above 1"
    assert optuna.load_study(study_name="a1/kl", storage=open_storage(url)).best_trial.number == 0


def test_the_optuna_dashboard_opens_the_campaign(url: str) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed: its view untested")
    store = OptunaStore.open(url, "a1")
    run(store, 0.002, 0.5)
    store.close()
    app = dashboard.wsgi(open_storage(url))
    studies = _get(app, "/api/studies")["study_summaries"]
    assert [s["study_name"] for s in studies] == ["a1/kl"]
    (seen,) = _get(app, f"/api/studies/{studies[0]['study_id']}")["trials"]
    assert (seen["state"], seen["params"][0]["name"], seen["values"]) == ("Complete", KL, [0.5])


def _get(app: object, path: str) -> dict[str, object]:
    from wsgiref.util import setup_testing_defaults

    environment: dict[str, object] = {"PATH_INFO": path, "QUERY_STRING": "after=0"}
    setup_testing_defaults(environment)
    environment["PATH_INFO"] = path
    body = b"".join(app(environment, lambda *_: None))  # type: ignore[operator]
    return dict(json.loads(body))


@pytest.mark.parametrize(("value", "clipped"), [(0.0004, 0.0005), (0.0005, 0.0005), (0.01, 0.01), (0.02, 0.01)])
def test_a_value_outside_its_range_is_clipped_for_optuna_and_kept_for_us(
    url: str, value: float, clipped: float
) -> None:
    store = OptunaStore.open(url, "a1")
    run(store, value, 0.5)
    store.close()
    assert studied(url)[0].params == {KL: clipped}
    again = OptunaStore.open(url, "a1", driver=False)
    assert again.records(kl)[0].settings == Overrides.of({KL: value})
    again.close()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_never_told_as_a_value(url: str, bad: float) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(), Score(bad, parts=(("gain", bad),)))
    assert store.records(kl)[0].finished is not None
    store.close()
    assert (studied(url)[0].state, studied(url)[0].value) == (TrialState.FAIL, None)
    store = OptunaStore.open(url, "a1")
    assert store.records(kl)[0].finished is not None
    assert store.ask(kl, 1)
    store.close()


def test_a_long_curve_is_kept_in_parts_and_comes_back_whole(url: str) -> None:
    rows = [(s, {name: math.sin(s) for name in METRICS.values()}) for s in range(1, 2001)]
    long = Finished(Curve.from_rows(rows))
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), long, score(0.5))
    store.close()
    attributes = studied(url)[0].user_attrs
    assert attributes["outcome"]["curve_parts"] > 5
    assert all(len(v) <= PART_CHARACTERS for k, v in attributes.items() if k.startswith("curve."))
    again = OptunaStore.open(url, "a1", driver=False)
    assert again.records(kl)[0].outcome is not None and to_json(again.records(kl)[0].outcome) == to_json(long)
    again.close()


def test_an_end_that_was_written_but_not_told_is_told_by_the_next_driver(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("sweep.adapters.study_log.StudyLog.tell", killed)
        store.settle(kl, trial(), finished(0.5), score(0.5))
    store.close()
    assert studied(url)[0].state == TrialState.RUNNING
    store = OptunaStore.open(url, "a1")
    assert store.orphans() == ()
    assert store.records(kl)[0].finished is not None
    store.close()
    assert (studied(url)[0].state, studied(url)[0].value) == (TrialState.COMPLETE, 0.5)


def test_an_end_that_was_half_written_leaves_an_orphan(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.close()
    storage = open_storage(url)
    storage.set_trial_user_attr(studied(url)[0]._trial_id, "curve.0", '{"steps": [1,')
    store = OptunaStore.open(url, "a1")
    assert [o.record.trial.id for o in store.orphans()] == [trial().id]
    store.settle(kl, trial(), finished(), score(0.5))
    store.close()
    again = OptunaStore.open(url, "a1", driver=False)
    assert again.records(kl)[0].finished is not None
    again.close()


def test_a_trial_that_another_program_closed_is_a_failure_and_its_late_result_is_kept(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    run(store, 0.002, 0.4)
    store.intend(kl, proposal(), trial())
    closed_by_another_program(url, 1)
    store.settle(kl, trial(), finished(0.61), score(0.61))
    for view in (store, OptunaStore.open(url, "a1", driver=False)):
        record = view.records(kl)[1]
        assert isinstance(record.outcome, Failed)
        assert record.outcome.message == "closed as FAIL by another program"
        found = view.find(trial().id)
        assert found is not None and to_json(found) == to_json(finished(0.61))
        view.close()
    assert studied(url)[1].state == TrialState.FAIL


def closed_by_another_program(url: str, number: int = 0, state: TrialState = TrialState.FAIL) -> None:
    open_storage(url).set_trial_state_values(studied(url)[number]._trial_id, state)


def test_an_attempt_of_a_trial_that_another_program_closed_fails_and_the_next_one_begins_as_a_trial_of_its_own(
    url: str,
) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    closed_by_another_program(url)
    store.fail_attempt(kl, trial(), failed(FailureClass.ENV_FAULT, "no route to host"))
    (record,) = store.records(kl)
    assert isinstance(record.outcome, Failed) and record.outcome.message == "closed as FAIL by another program"
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(0.5), score(0.5))
    assert store.records(kl)[0].finished is not None
    store.close()
    assert [t.state for t in studied(url)] == [TrialState.FAIL, TrialState.COMPLETE]


def test_a_next_attempt_at_a_trial_that_another_program_closed_keeps_the_attempts_before(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.fail_attempt(kl, trial(), failed(FailureClass.ENV_FAULT, "no route to host"))
    closed_by_another_program(url)
    store.intend(kl, proposal(), trial())
    assert store.records(kl)[0].outcome is None
    before = [f.message for f in store.attempts(kl, trial().id) if f is not None]
    assert before == ["no route to host", "closed as FAIL by another program"]
    store.settle(kl, trial(), finished(0.5), score(0.5))
    store.close()
    again = OptunaStore.open(url, "a1", driver=False)
    assert again.records(kl)[0].finished is not None
    assert len(again.attempts(kl, trial().id)) == 3
    again.close()


def test_an_orphan_that_another_program_closed_after_the_campaign_was_opened_is_begun_again(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    store.close()
    store = OptunaStore.open(url, "a1")
    closed_by_another_program(url)
    assert [o.record.trial.id for o in store.orphans()] == [trial().id]
    store.intend(kl, proposal(), trial())
    assert store.orphans() == ()
    store.settle(kl, trial(), finished(0.5), score(0.5))
    assert store.records(kl)[0].finished is not None
    store.close()


def test_a_trial_that_its_first_driver_closes_while_the_next_one_opens_the_campaign_is_as_it_was_settled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OptunaStore.open(url, "a1")
    store.intend(kl, proposal(), trial())
    with monkeypatch.context() as patch:
        patch.setattr("sweep.adapters.study_log.StudyLog.tell", lambda *_: None)
        store.settle(kl, trial(), finished(0.5), score(0.5))
    store.close()
    tell = StudyLog.tell

    def told_meanwhile(log: StudyLog, optuna_id: int, outcome: Outcome, value: Score | None) -> None:
        tell(log, optuna_id, outcome, value)
        tell(log, optuna_id, outcome, value)

    monkeypatch.setattr("sweep.adapters.study_log.StudyLog.tell", told_meanwhile)
    store = OptunaStore.open(url, "a1")
    assert store.records(kl)[0].finished is not None
    store.close()
    assert (studied(url)[0].state, studied(url)[0].value) == (TrialState.COMPLETE, 0.5)


def test_a_driver_that_was_out_of_touch_still_hands_in_its_result_and_then_stops(url: str) -> None:
    far = Holder("far", "node7", 4711, "1", "another boot")
    lost = OptunaStore(open_storage(url), "a1", 0, Lease.take(url, "a1", holder=far, beat_seconds=600), 5.0)
    lost.intend(kl, proposal(), trial())
    new = OptunaStore(open_storage(url), "a1", 0, Lease.take(url, "a1", stale_seconds=-1.0), 5.0)
    (orphan,) = new.orphans()
    new.fail_attempt(kl, trial(), failed(FailureClass.ENV_FAULT, "its driver is gone"))
    lost.settle(kl, trial(), finished(0.61), score(0.61))
    with pytest.raises(StoreError, match="taken over"):
        lost.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    found = new.find(orphan.record.trial.id)
    assert found is not None and to_json(found) == to_json(finished(0.61))
    assert new.orphans() == ()
    new.settle(kl, trial(), failed(), None)
    assert new.records(kl)[0].finished is not None
    lost.close()
    new.close()


def test_a_late_result_reaches_the_driver_that_has_failed_and_begun_the_trial_again(url: str) -> None:
    far = Holder("far", "node7", 4711, "1", "another boot")
    lost = OptunaStore(open_storage(url), "a1", 0, Lease.take(url, "a1", holder=far, beat_seconds=600), 5.0)
    lost.intend(kl, proposal(), trial())
    new = OptunaStore(open_storage(url), "a1", 0, Lease.take(url, "a1", stale_seconds=-1.0), 5.0)
    new.settle(kl, trial(), failed(FailureClass.HANG), None)
    new.intend(kl, proposal(), trial())
    assert not isinstance(new.find(trial().id), Finished)
    lost.settle(kl, trial(), finished(0.61), score(0.61))
    found = new.find(trial().id)
    assert found is not None and to_json(found) == to_json(finished(0.61))
    new.settle(kl, trial(), found, score(0.61))
    assert [t.state for t in studied(url)] == [TrialState.FAIL, TrialState.COMPLETE]
    lost.close()
    new.close()


def test_a_reader_sees_a_running_campaign_writes_nothing_and_needs_no_lease(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    run(store, 0.002, 0.5)
    store.intend(kl, proposal(), trial())
    reader = OptunaStore.open(url, "a1", driver=False)
    assert [r.outcome is None for r in reader.records(kl)] == [False, True]
    assert reader.records(minibatch) == ()
    assert reader.attempts(minibatch, trial().id) == ()
    for write in (
        lambda: reader.intend(kl, proposal(), trial()),
        lambda: reader.ask(kl, 1),
        lambda: reader.fail_attempt(kl, trial(), failed()),
    ):
        with pytest.raises(StoreError, match="read only"):
            write()
    reader.close()
    assert [s.study_name for s in open_storage(url).get_all_studies()] == ["a1/kl"]
    store.close()


def test_campaigns_in_one_storage_do_not_see_each_other(url: str) -> None:
    first, second = OptunaStore.open(url, "a1"), OptunaStore.open(url, "a")
    run(first, 0.002, 0.5)
    assert second.records(kl) == ()
    assert second.find(trial({KL: 0.002}).id) is None
    first.close()
    second.close()
    open_storage(url).create_new_study([optuna.study.StudyDirection.MAXIMIZE], "by hand")
    assert campaigns(url) == ("a", "a1")


def test_a_changed_search_space_names_every_change_and_both_ways_out(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    run(store, 0.002, 0.5)
    store.close()
    store = OptunaStore.open(url, "a1")
    wider = replace(kl, knobs=(Knob(KL, 0.0005, 0.02, log=True), Knob("algorithm.lam", 0.9, 1.0)), objective="eta")
    with pytest.raises(StoreError) as refused:
        store.ask(wider, 1)
    said = str(refused.value)
    assert f"knobs.{KL}.high: 0.01 -> 0.02" in said
    assert "knobs.algorithm.lam: nothing ->" in said
    assert "objective: reward -> eta" in said
    assert "put it back" in said and "campaign=NAME earlier=a1" in said
    assert len(studied(url)) == 1
    store.close()


def test_finished_trials_of_an_earlier_campaign_are_found_and_nothing_else_of_it(url: str) -> None:
    before = OptunaStore.open(url, "a1")
    run(before, 0.002, 0.5)
    run(before, 0.003, None)
    before.close()
    earlier = OptunaStore.open(url, "a1", driver=False)
    store = OptunaStore.open(url, "a2", earlier=earlier)
    found = store.find(trial({KL: 0.002}).id)
    assert found is not None and to_json(found) == to_json(finished(0.5))
    assert store.find(trial({KL: 0.003}).id) is None
    assert store.records(kl) == ()
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    store.settle(kl, trial({KL: 0.002}), found, score(0.5))
    assert store.records(kl)[0].finished is not None
    store.close()


@pytest.mark.parametrize("sampler", ["TPESampler", "RandomSampler", "QMCSampler", "NSGAIISampler", "BruteForceSampler"])
def test_samplers_by_class_name_propose_points_in_range_across_drivers(url: str, sampler: str) -> None:
    stage = replace(kl, rule=SearchRule(sampler), knobs=(Knob("data.seed", 1, 400, integer=True),))
    seen = set()
    for _ in range(3):
        store = OptunaStore.open(url, "a1")
        for _ in range(3):
            (asked,) = store.ask(stage, 1)
            value = asked.settings.get("data.seed")
            assert isinstance(value, int) and 1 <= value <= 400
            seen.add(value)
            store.intend(stage, asked, trial(dict(asked.settings)))
            store.settle(stage, trial(dict(asked.settings)), finished(), score(float(value)))
        store.close()
    assert len(seen) >= 8


@pytest.mark.parametrize(("sampler", "said"), [("Tpe", "here work .*TPESampler"), ("GridSampler", "try TPESampler")])
def test_a_sampler_that_cannot_be_made_is_refused_with_those_that_can(url: str, sampler: str, said: str) -> None:
    store = OptunaStore.open(url, "a1")
    with pytest.raises(ConfigError, match=said):
        store.ask(replace(kl, rule=SearchRule(sampler)), 1)
    store.close()


@pytest.mark.parametrize("knob", [Knob(KL, 0.0, 1.0, log=True), Knob(KL, 2.0, 1.0)])
def test_a_range_that_cannot_be_searched_is_refused(url: str, knob: Knob) -> None:
    store = OptunaStore.open(url, "a1")
    with pytest.raises(ConfigError, match=f"range of {KL} cannot be searched"):
        store.ask(replace(kl, knobs=(knob,)), 1)
    store.close()


def test_the_sampler_learns_from_scores_and_stays_away_from_what_cannot_run(url: str) -> None:
    """A quarter of the space runs out of memory and the best lies at 0.008: later proposals come nearer."""
    store = OptunaStore.open(url, "a1", seed=1)
    values = []
    for _ in range(30):
        (asked,) = store.ask(kl, 1)
        value = asked.settings.get(KL)
        assert isinstance(value, float)
        run_asked = trial(dict(asked.settings))
        store.intend(kl, asked, run_asked)
        if value < 0.001:
            store.settle(kl, run_asked, failed(), None)
        else:
            store.settle(kl, run_asked, finished(), score(-abs(math.log(value / 0.008))))
        values.append(abs(math.log(value / 0.008)))
    store.close()
    assert sum(values[-10:]) / 10 < 0.5 * sum(values[:10]) / 10
    assert all(t.value is None for t in studied(url) if t.state == TrialState.FAIL)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_learning_copy_holds_the_best_the_latest_and_the_running(count: int) -> None:
    def entry(number: int, value: float | None, *, running: bool = False) -> Entry:
        record = Record(trial(seed=number), Overrides(), Overrides(), outcome=None if running else finished())
        return Entry(number, record, None if value is None else Score(value), (None,), number)

    entries = [entry(0, 0.9), entry(1, None, running=True), entry(2, 0.1), entry(3, math.nan), entry(4, 0.8)]
    entries += [entry(5, 0.2), entry(6, None), entry(7, 0.3)]
    kept = {1: [0, 1, 7], 2: [0, 1, 4, 6, 7], 3: [0, 1, 4, 5, 6, 7]}[count]
    assert [e.optuna_id for e in worth_learning(entries, count)] == kept
    assert len(worth_learning(entries, 4)) == 8


def test_another_process_that_locks_the_file_only_delays(url: str) -> None:
    store = OptunaStore.open(url, "a1")
    store.records(kl)
    blocker = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(1.5, lambda: blocker.execute("COMMIT"))
    timer.start()
    began = time.monotonic()
    run(store, 0.002, 0.5)
    assert time.monotonic() - began > 1.0
    timer.join()
    blocker.close()
    assert len(store.records(kl)) == 1
    store.close()


FULL = """
import resource, signal, sys
from pathlib import Path
from sweep.adapters.optuna_store import OptunaStore
from sweep.errors import StoreError
from tests.adapters.store_stages import KL, finished, kl, proposal, score, trial
url = sys.argv[1]
store = OptunaStore.open(url, "a1", patience_seconds=1.0)
store.intend(kl, proposal(), trial())
store.settle(kl, trial(), finished(), score(0.5))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
files = [Path(url.removeprefix("sqlite:///") + end) for end in ("", "-wal")]
full = max(f.stat().st_size for f in files if f.exists())
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (full, hard))
began = 0
try:
    for number in range(200):
        store.intend(kl, proposal({KL: 0.002 + number / 1e6}), trial({KL: 0.002 + number / 1e6}))
        began += 1
    raise SystemExit("the disk never filled")
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
value = {KL: 0.002 + began / 1e6}
store.intend(kl, proposal(value), trial(value))
store.settle(kl, trial(value), finished(), score(0.6))
print("records", len(store.records(kl)), "of", began + 2)
store.close()
"""


def test_a_full_disk_pauses_and_then_says_so_and_nothing_recorded_is_lost(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, url], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    said, counted = done.stdout.strip().splitlines()
    assert "cannot begin a trial: the storage failed for 1 s" in said
    assert "run the same command again" in said
    words = counted.split()
    assert words[1] == words[3]
    reader = OptunaStore.open(url, "a1", driver=False)
    assert len(reader.records(kl)) == int(words[1])
    assert sum(r.finished is not None for r in reader.records(kl)) == 2
    reader.close()


@pytest.mark.slow
def test_a_restart_of_postgresql_in_the_middle_loses_and_doubles_nothing(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    store = OptunaStore.open(postgres_database, "a1", patience_seconds=120.0)
    run(store, 0.001, 0.5)
    done = threading.Event()
    restarts: list[int] = []

    def restart_often() -> None:
        try:
            for number in range(3):
                time.sleep(0.7)
                postgres_server.stop()
                time.sleep(0.5)
                postgres_server.start()
                restarts.append(number)
        finally:
            done.set()

    thread = threading.Thread(target=restart_often)
    thread.start()
    number = 0
    while not done.is_set() or number < 20:
        number += 1
        run(store, 0.001 + number / 1e6, 0.5)
    thread.join()
    assert restarts == [0, 1, 2]
    before = [r.trial.id for r in store.records(kl)]
    assert len(before) == number + 1
    store.close()
    seen = studied(postgres_database)
    assert [t.user_attrs["trial_id"] for t in seen] == before
    assert {t.state for t in seen} == {TrialState.COMPLETE}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (finished(), TrialState.COMPLETE),
        (failed(FailureClass.OOM_GPU), TrialState.PRUNED),
        (failed(FailureClass.OOM_HOST), TrialState.PRUNED),
        (failed(FailureClass.INFEASIBLE_CONFIG), TrialState.PRUNED),
        (Diverged(Curve(), "nan"), TrialState.PRUNED),
        (failed(FailureClass.ENV_FAULT), TrialState.FAIL),
        (failed(FailureClass.HANG), TrialState.FAIL),
        (failed(FailureClass.SOFTWARE_BUG), TrialState.FAIL),
        (failed(FailureClass.UNKNOWN), TrialState.FAIL),
    ],
)
def test_the_sampler_hears_of_failures_that_are_the_points_own_but_never_a_value(
    outcome: Outcome, state: TrialState
) -> None:
    proposer = Proposer(kl, SearchRule(), 0, {})
    record = Record(trial({KL: 0.002}), Overrides.of({KL: 0.002}), Overrides())
    proposer.begun(record, {})
    ended = replace(record, outcome=outcome)
    proposer.ended(ended, score(0.5) if ended.finished else None)
    (heard,) = proposer._study.get_trials()
    assert (heard.state, heard.value) == (state, 0.5 if ended.finished else None)


ENDLESS = """
import sys
from sweep.adapters.optuna_store import OptunaStore
from sweep.core.progress import Proposal
from tests.adapters.store_stages import KL, finished, kl, score, trial
store = OptunaStore.open(sys.argv[1], "a1", seed=3)
for orphan in store.orphans():
    record = orphan.record
    store.intend(kl, Proposal(record.settings, record.trial.seed, record.requested), record.trial)
    store.settle(kl, record.trial, finished(), score(0.5))
    print("ended", record.trial.id, flush=True)
while True:
    (asked,) = store.ask(kl, 1)
    begun = trial(dict(asked.settings))
    store.intend(kl, asked, begun)
    print("begun", begun.id, flush=True)
    store.settle(kl, begun, finished(), score(float(asked.settings.get(KL))))
    print("ended", begun.id, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_kill_9_at_any_moment_loses_no_recorded_trial_and_repeats_none(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db" if database == "sqlite" else request.getfixturevalue("postgres_database")
    moments = random.Random(7)
    said: list[tuple[str, str]] = []
    for _ in range(6):
        driver = subprocess.Popen([sys.executable, "-c", ENDLESS, url], stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        lines = [driver.stdout.readline() for _ in range(moments.randint(3, 9))]  # by progress: a busy machine is slow
        time.sleep(moments.uniform(0.0, 0.1))
        driver.kill()
        lines += driver.stdout.read().splitlines()
        driver.wait()
        driver.stdout.close()
        said += [(words[0], words[1]) for line in lines if len(words := line.split()) == 2 and len(words[1]) == 12]
    ended = [trial_id for what, trial_id in said if what == "ended"]
    begun = {trial_id for what, trial_id in said if what == "begun"}
    assert len(ended) == len(set(ended)) > 6
    store = OptunaStore.open(url, "a1")
    records = {r.trial.id: r for r in store.records(kl)}
    assert all(records[trial_id].finished for trial_id in ended)
    assert begun <= set(records)
    assert len(store.orphans()) <= 1
    store.close()
    assert len(studied(url)) == len(records)
