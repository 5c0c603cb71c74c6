"""What every `sweep.ports.Store` keeps: one suite for the fake and for Optuna on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, to_json
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.stage import Knob
from sweep.errors import StoreError
from sweep.ports import Store
from tests.adapters.store_stages import KL, MINI, failed, finished, kl, minibatch, proposal, score, trial, winner
from tests.fakes_store import Disk, MemoryStore

Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def reopen(request: pytest.FixtureRequest) -> Iterator[Reopen]:
    """Opens the campaign as the next driver, after the driver before it let go."""
    from sweep.adapters.optuna_store import OptunaStore

    opened: list[Store] = []
    disk = Disk()
    if request.param == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path')}/optuna.db"
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_database")

    def next_driver() -> Store:
        if opened:
            opened[-1].close()
        memory = request.param == "memory"
        opened.append(MemoryStore(disk) if memory else OptunaStore.open(url, "a1", patience_seconds=5.0))
        return opened[-1]

    yield next_driver
    opened[-1].close()


@pytest.fixture
def store(reopen: Reopen) -> Store:
    return reopen()


def test_a_new_campaign_has_no_records_winners_or_orphans(store: Store) -> None:
    assert store.records(kl) == ()
    assert store.winners() == ()
    assert store.orphans() == ()
    assert store.find(trial().id) is None
    assert store.attempts(kl, trial().id) == ()


def test_an_intended_trial_is_a_running_record_before_anything_else_happens(store: Store) -> None:
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    (record,) = store.records(kl)
    assert record.outcome is None
    assert record.trial == trial({KL: 0.002})
    assert record.settings == Overrides.of({KL: 0.002})
    assert record.note == "by a test"
    assert store.attempts(kl, record.trial.id) == (None,)


def test_records_come_in_order_of_their_start_whatever_ends_first(store: Store) -> None:
    for value in (0.004, 0.001, 0.002):
        store.intend(kl, proposal({KL: value}), trial({KL: value}))
    store.settle(kl, trial({KL: 0.002}), finished(), score(0.3))
    store.settle(kl, trial({KL: 0.004}), failed(), None)
    assert [r.settings.get(KL) for r in store.records(kl)] == [0.004, 0.001, 0.002]
    assert [r.outcome is None for r in store.records(kl)] == [False, True, False]


def test_records_are_the_same_before_and_after_a_restart_to_the_last_digit(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(1 / 3), score(1 / 7))
    store.intend(kl, proposal({KL: 1e-3 / 3}, seed=1), trial({KL: 1e-3 / 3}, seed=1))
    store.settle(kl, trial({KL: 1e-3 / 3}, seed=1), failed(), None)
    before = store.records(kl)
    after = reopen().records(kl)
    assert [(r.trial, r.settings, r.requested, r.note) for r in before] == [
        (r.trial, r.settings, r.requested, r.note) for r in after
    ]
    assert [to_json(r.outcome) for r in before if r.outcome] == [to_json(r.outcome) for r in after if r.outcome]


def test_the_first_outcome_stands_and_settling_again_changes_nothing(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(0.5), score(0.5))
    for again in (finished(0.5), finished(0.9), failed()):
        store.settle(kl, trial(), again, None)
    for view in (store, reopen()):
        (record,) = view.records(kl)
        assert record.outcome is not None and to_json(record.outcome) == to_json(finished(0.5))


def test_a_late_finished_outcome_leaves_the_record_but_is_found_so_the_trial_never_runs_again(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), failed(FailureClass.HANG, "silent"), None)
    store.settle(kl, trial(), finished(0.61), score(0.61))
    for view in (store, reopen()):
        assert isinstance(view.records(kl)[0].outcome, Failed)
        found = view.find(trial().id)
        assert found is not None and to_json(found) == to_json(finished(0.61))


def test_a_trial_that_was_never_intended_cannot_be_settled(store: Store) -> None:
    with pytest.raises(StoreError, match="never begun in stage kl"):
        store.settle(kl, trial(), finished(), score(0.5))
    assert store.records(kl) == ()


def test_a_result_of_one_stage_is_found_from_another_and_recorded_there_without_a_run(reopen: Reopen) -> None:
    store = reopen()
    store.intend(minibatch, proposal(), trial())
    store.settle(minibatch, trial(), finished(), score(1.0))
    found = store.find(trial().id)
    assert found is not None
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), found, score(0.4))
    for view in (store, reopen()):
        assert len(view.records(minibatch)) == len(view.records(kl)) == 1
        assert view.records(kl)[0].finished is not None


def test_a_finished_outcome_is_preferred_to_a_failed_one_of_another_stage(store: Store) -> None:
    for stage in (minibatch, kl):
        store.intend(stage, proposal(), trial())
    store.settle(minibatch, trial(), failed(), None)
    assert isinstance(store.find(trial().id), Failed)
    store.settle(kl, trial(), finished(), score(0.5))
    found = store.find(trial().id)
    assert found is not None and to_json(found)["kind"] == "finished"


def test_a_lost_drivers_trials_are_orphans_until_they_are_settled_or_begun_again(reopen: Reopen) -> None:
    store = reopen()
    for value in (0.001, 0.002, 0.003):
        store.intend(kl, proposal({KL: value}), trial({KL: value}))
    store.settle(kl, trial({KL: 0.002}), finished(), score(0.5))
    assert store.orphans() == ()
    store = reopen()
    assert [(o.stage, o.record.trial.id, o.abandoned) for o in store.orphans()] == [
        ("kl", trial({KL: 0.001}).id, 1),
        ("kl", trial({KL: 0.003}).id, 1),
    ]
    store.settle(kl, trial({KL: 0.001}), finished(), score(0.4))
    assert [o.record.trial.id for o in store.orphans()] == [trial({KL: 0.003}).id]
    store.fail_attempt(kl, trial({KL: 0.003}), failed(FailureClass.ENV_FAULT, "driver lost"))
    store.intend(kl, proposal({KL: 0.003}), trial({KL: 0.003}))
    assert store.orphans() == ()
    assert [r.settings.get(KL) for r in store.records(kl)] == [0.001, 0.002, 0.003]
    assert [(o.record.trial.id, o.abandoned) for o in reopen().orphans()] == [(trial({KL: 0.003}).id, 1)]


def test_attempts_belong_to_one_record_and_only_the_last_outcome_ends_it(reopen: Reopen) -> None:
    store = reopen()
    occupied = failed(FailureClass.ENV_FAULT, "gpu memory occupied")
    for _ in range(2):
        store.intend(kl, proposal(), trial())
        store.fail_attempt(kl, trial(), occupied)
        assert store.records(kl)[0].outcome is None
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), finished(0.6), score(0.6))
    for view in (store, reopen()):
        assert len(view.records(kl)) == 1
        assert view.attempts(kl, trial().id) == (occupied, occupied, None)
        assert view.records(kl)[0].finished is not None


def test_a_failed_attempt_is_recorded_once_and_not_after_the_end(store: Store) -> None:
    store.intend(kl, proposal(), trial())
    store.fail_attempt(kl, trial(), failed(message="first"))
    store.fail_attempt(kl, trial(), failed(message="again"))
    assert store.attempts(kl, trial().id) == (failed(message="first"),)
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), failed(message="last"), None)
    store.fail_attempt(kl, trial(), failed(message="too late"))
    assert store.attempts(kl, trial().id) == (failed(message="first"), failed(message="last"))


def test_a_failed_trial_can_be_begun_anew_and_stays_one_record(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal(), trial())
    store.settle(kl, trial(), failed(FailureClass.ENV_FAULT), None)
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    store = reopen()
    store.intend(kl, proposal(), trial())
    assert store.records(kl)[0].outcome is None
    store.settle(kl, trial(), finished(), score(0.5))
    for view in (store, reopen()):
        assert [r.settings for r in view.records(kl)] == [NOTHING, Overrides.of({KL: 0.002})]
        assert view.records(kl)[0].finished is not None
        assert view.attempts(kl, trial().id) == (failed(FailureClass.ENV_FAULT), None)


def test_asked_values_keep_to_the_range_and_differ(store: Store) -> None:
    asked = store.ask(kl, 8)
    values = [p.settings.get(KL) for p in asked]
    assert all(isinstance(v, float) and 0.0005 <= v <= 0.01 for v in values)
    assert len(set(values)) == 8
    assert all(p.requested == p.settings and p.number is not None for p in asked)
    assert store.records(kl) == ()


def test_an_asked_trial_is_recorded_under_its_effective_settings(reopen: Reopen) -> None:
    store = reopen()
    (asked,) = store.ask(kl, 1)
    effective = replace(asked, settings=Overrides.of({KL: 0.004}))
    store.intend(kl, effective, trial({KL: 0.004}))
    store.settle(kl, trial({KL: 0.004}), finished(), score(0.5))
    for view in (store, reopen()):
        (record,) = view.records(kl)
        assert (record.settings, record.requested) == (Overrides.of({KL: 0.004}), asked.requested)


def test_an_asked_repeat_of_a_finished_trial_takes_its_result_and_adds_no_record(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    store.settle(kl, trial({KL: 0.002}), finished(), score(0.5))
    (asked,) = store.ask(kl, 1)
    store.intend(kl, asked, trial({KL: 0.002}))
    known = store.find(trial({KL: 0.002}).id)
    assert known is not None
    store.settle(kl, trial({KL: 0.002}), known, score(0.5))
    for view in (store, reopen()):
        assert len(view.records(kl)) == 1
        assert view.orphans() == ()


def test_an_asked_repeat_of_a_running_trial_is_refused_and_can_be_discarded(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    (asked,) = store.ask(kl, 1)
    with pytest.raises(StoreError, match="discard"):
        store.intend(kl, asked, trial({KL: 0.002}))
    store.discard(kl, asked, "repeats a running trial")
    for view in (store, reopen()):
        assert len(view.records(kl)) == 1
        assert view.attempts(kl, trial({KL: 0.002}).id) == (None,)


def test_a_stage_that_walks_a_rule_cannot_be_asked(store: Store) -> None:
    with pytest.raises(StoreError, match="minibatch"):
        store.ask(minibatch, 1)


def test_a_driver_that_resumes_draws_what_the_lost_one_would_have_drawn(reopen: Reopen) -> None:
    lost = reopen().ask(kl, 2)
    store = reopen()
    again = store.ask(kl, 2)
    assert [p.settings for p in again] == [p.settings for p in lost]
    store.intend(kl, again[0], trial(dict(again[0].settings)))
    store.settle(kl, trial(dict(again[0].settings)), finished(), score(0.5))
    third = store.ask(kl, 1)[0].settings
    resumed = reopen().ask(kl, 2)
    assert resumed[0].settings == again[1].settings
    assert resumed[1].settings == third
    assert len({p.settings for p in resumed} | {again[0].settings}) == 3


@pytest.mark.parametrize("reuse", [False, True])
def test_a_proposal_that_was_not_run_does_not_come_again(reopen: Reopen, reuse: bool) -> None:
    store = reopen()
    store.intend(kl, proposal({KL: 0.002}), trial({KL: 0.002}))
    store.settle(kl, trial({KL: 0.002}), finished(), score(0.5))
    seen = set()
    for _ in range(6):
        (asked,) = store.ask(kl, 1)
        seen.add(asked.settings)
        if reuse:
            store.intend(kl, asked, trial({KL: 0.002}))
        else:
            store.discard(kl, asked, "repeats a running trial")
    assert len(seen) == 6


def test_an_edited_range_is_refused_before_anything_is_asked(reopen: Reopen) -> None:
    store = reopen()
    store.intend(kl, proposal(), trial())
    wider = replace(kl, knobs=(Knob(KL, 0.0005, 0.02, log=True),))
    store = reopen()
    for action in (lambda: store.records(wider), lambda: store.ask(wider, 1)):
        with pytest.raises(StoreError, match="another search space"):
            action()
    assert len(store.records(kl)) == 1


def test_a_range_may_be_edited_while_the_stage_has_no_trials(reopen: Reopen) -> None:
    reopen().records(kl)
    wider = replace(kl, knobs=(Knob(KL, 0.0005, 0.02, log=True),))
    assert reopen().records(wider) == ()


def test_a_larger_budget_is_no_other_search_space(reopen: Reopen) -> None:
    reopen().intend(kl, proposal(), trial())
    larger = replace(kl, budget=replace(kl.budget, trials=20))
    assert len(reopen().records(larger)) == 1


def test_winners_come_back_whole_and_in_order(reopen: Reopen) -> None:
    store = reopen()
    store.freeze(winner("minibatch", {MINI: 128}))
    store.freeze(winner("kl"))
    for view in (store, reopen()):
        assert [w.to_json() for w in view.winners()] == [winner("minibatch", {MINI: 128}).to_json(), winner().to_json()]


def test_a_frozen_winner_never_changes(reopen: Reopen) -> None:
    store = reopen()
    store.freeze(winner())
    store.freeze(winner())
    for other in (winner(settings={KL: 0.003}), winner(stands_on="other base")):
        with pytest.raises(StoreError, match="frozen"):
            store.freeze(other)
    assert [w.to_json() for w in reopen().winners()] == [winner().to_json()]


def test_an_unfrozen_stage_has_no_winner_until_it_is_frozen_anew_and_another_one_is_then_taken(reopen: Reopen) -> None:
    store = reopen()
    store.freeze(winner("minibatch", {MINI: 128}))
    store.freeze(winner("kl"))
    store.unfreeze("minibatch")
    for view in (store, reopen()):
        assert [w.stage for w in view.winners()] == ["kl"]
    store = reopen()
    with pytest.raises(StoreError, match="not frozen"):
        store.unfreeze("minibatch")
    store.freeze(winner("minibatch", {MINI: 64}))
    again = {w.stage: w.choice.settings for w in reopen().winners()}
    assert again["minibatch"] == winner("minibatch", {MINI: 64}).choice.settings
    assert set(again) == {"minibatch", "kl"}


def test_a_second_driver_is_refused_until_the_first_lets_go(reopen: Reopen) -> None:
    from sweep.adapters.optuna_store import OptunaStore

    store = reopen()
    with pytest.raises(StoreError, match="already driven"):
        if isinstance(store, MemoryStore):
            MemoryStore(store.disk)
        else:
            OptunaStore.open(store._storage.url, "a1")  # type: ignore[attr-defined]
    store.close()
    store.close()
    assert reopen().records(kl) == ()
