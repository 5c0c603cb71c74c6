"""Trials, curves, outcomes and winners: identity by content, and JSON that comes back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sweep.core.curve import METRICS, Curve
from sweep.core.failure import FailureClass, Retry
from sweep.core.failure_policy import Again, Break, Settle, after
from sweep.core.outcome import Diverged, Failed, Finished, from_json, to_json
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.core.winner import Choice, Score, Winner

BASE = Overrides.of({"algorithm.lam": 0.97, "+sweep.schedule_steps": 10000})


def test_a_trials_id_changes_whenever_the_run_would():
    trial = Trial(BASE, 1, 40)
    assert len(trial.id) == 12
    others = [Trial(BASE, 2, 40), Trial(BASE, 1, 41), Trial(BASE.merged({"algorithm.lam": 0.95}), 1, 40)]
    assert len({trial.id, *(t.id for t in others)}) == 4


def test_a_trial_that_only_generates_is_another_and_one_that_trains_keeps_its_id():
    trained = Trial(BASE, 1, 40)
    generated = Trial(BASE, 1, 40, Measure.ROLLOUT)
    assert trained.id == "a3ce2a9d6518"  # from before trials could be measured otherwise
    assert generated.id != trained.id
    assert Trial.from_json(json.loads(json.dumps(generated.to_json()))) == generated
    assert "measure" not in trained.to_json()


def test_a_trials_id_does_not_change_with_spelling():
    same = Overrides.of([("sweep.schedule_steps", 10000.0), ("+algorithm.lam", 0.97)])
    assert Trial(same, 1, 40).id == Trial(BASE, 1, 40).id


def test_a_trial_comes_back_from_json():
    trial = Trial(BASE, 1, 40)
    assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_a_curve_takes_our_names_and_leaves_gaps_as_nan():
    curve = Curve.from_rows([(2, {"critic/score/mean": 0.2}), (1, {"critic/score/mean": 0.1, "timing_s/gen": 3})])
    assert curve.steps == (1, 2)
    assert curve.score == (0.1, 0.2)
    assert curve.gen_seconds[0] == 3.0
    assert math.isnan(curve.gen_seconds[1])
    assert curve.last_step == 2
    assert Curve().last_step == 0


def test_kl_is_the_losss_where_it_was_never_part_of_the_reward_and_never_the_updates() -> None:
    in_loss = {"actor/kl_loss": 0.1, "actor/kl_coef": 0.002, "actor/ppo_kl": 0.0003}
    curve = Curve.from_rows([(1, in_loss), (2, {})])
    assert (curve.kl_nats[0], curve.kl_coef[0], curve.update_kl_nats[0]) == (0.1, 0.002, 0.0003)
    both = Curve.from_rows([(1, in_loss), (2, {"actor/reward_kl_penalty": 0.2})])
    assert math.isnan(both.kl_nats[0]) and both.kl_nats[1] == 0.2
    assert math.isnan(Curve.from_rows([(1, {"actor/ppo_kl": 0.0003})]).kl_nats[0])


def test_the_last_row_of_a_repeated_step_wins():
    assert Curve.from_rows([(1, {"critic/score/mean": 0.1}), (1, {"critic/score/mean": 0.3})]).score == (0.3,)


def test_reference_kl_and_update_kl_are_never_mixed():
    assert METRICS["kl_nats"] == "actor/reward_kl_penalty"
    assert METRICS["update_kl_nats"] == "actor/ppo_kl"


@pytest.mark.parametrize(
    "outcome",
    [
        Finished(Curve.from_rows([(1, {"critic/score/mean": 0.125, "actor/grad_norm": math.nan})]), 3.5),
        Finished(Curve.from_rows([(1, {"critic/score/mean": 0.125})]), 3.5, "NVIDIA H200, 32 x Xeon"),
        Diverged(Curve.from_rows([(1, {"critic/score/mean": 0.5})]), "non-finite actor/grad_norm", 1.0),
        Failed(FailureClass.OOM_GPU, "no memory", 12, "/x/y.log", 9.0),
    ],
)
def test_an_outcome_comes_back_from_json(outcome):
    back = from_json(json.loads(json.dumps(to_json(outcome))))
    assert to_json(back) == to_json(outcome)
    assert type(back) is type(outcome)


def test_a_winner_comes_back_from_json():
    settings = Overrides.of({"algorithm.lam": 0.95})
    choice = Choice(settings, settings, Score(1.5, 0.1, (("gain", 0.3),)), Score(1.0), ("abc",), "why", ("note",))
    winner = Winner(
        "lr_lambda", choice, "LadderRule", (1, 2), "hash", BASE, (("kl", "h"),), (("verl", "0.9.1"),), 20, BASE
    )
    back = Winner.from_json(json.loads(json.dumps(winner.to_json())))
    assert back.to_json() == winner.to_json()
    assert math.isnan(back.choice.baseline_score.standard_error)


def fault(failure_class: FailureClass, last_step: int = 0, **advice: Any) -> Failed:
    return Failed(failure_class, "message", last_step, **advice)


ENV, HANG, UNKNOWN = FailureClass.ENV_FAULT, FailureClass.HANG, FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("failure", "earlier", "step"),
    [
        (fault(ENV), [], Again(5.0)),
        (fault(ENV), [fault(ENV)], Again(30.0)),
        (fault(HANG), [], Again(0.0)),
        (fault(HANG), [fault(HANG)], Settle()),
        (fault(FailureClass.OOM_GPU), [], Settle()),
        (fault(FailureClass.INFEASIBLE_CONFIG), [], Settle()),
        (fault(FailureClass.SOFTWARE_BUG), [], Settle()),
        (fault(FailureClass.UNKNOWN), [], Settle()),
        (fault(ENV, 7), [fault(ENV, 7)] * 5, Settle()),
        (fault(UNKNOWN, retry=Retry.SAME), [], Again(0.0)),
        (fault(UNKNOWN, 4, retry=Retry.RESUME), [fault(ENV)], Again(0.0)),
        (fault(UNKNOWN, retry=Retry.SAME), [fault(UNKNOWN)], Settle()),
        (fault(UNKNOWN, retry=Retry.NO), [], Settle()),
        (fault(ENV, 3, abort=True), [], Again(5.0)),
        (fault(HANG, retry=Retry.NEW_CONFIG), [], Settle()),
    ],
)
def test_each_class_of_failure_has_its_answer(failure, earlier, step):
    assert after(failure, earlier) == step


def test_what_every_trial_would_end_like_breaks_the_campaign_at_once_with_what_would_help():
    step = after(fault(ENV, abort=True, fix=("lower this", "mend that")), [])
    assert step == Break("every trial would end like this one: message; try: lower this; or mend that")


def test_the_doctors_advice_survives_storage_and_old_failures_have_none():
    advised = fault(UNKNOWN, fix=("lower this",), retry=Retry.SAME, abort=True)
    assert from_json(to_json(advised)) == advised
    assert "fix" not in to_json(fault(UNKNOWN)) and from_json(to_json(fault(UNKNOWN))) == fault(UNKNOWN)


def test_the_third_environment_fault_without_a_step_breaks_the_campaign():
    assert isinstance(after(fault(ENV), [fault(ENV), fault(ENV)], idle_faults=3), Break)
    assert isinstance(after(fault(ENV), [fault(ENV), fault(ENV)], idle_faults=2), Again)
    assert isinstance(after(fault(ENV, 1), [fault(ENV), fault(ENV, 3)]), Again)


def test_a_trial_that_meets_one_fault_after_the_other_while_others_go_on_is_given_up_alone():
    assert isinstance(after(fault(ENV), [fault(ENV)] * 4, idle_faults=1), Again)
    assert after(fault(ENV), [fault(ENV)] * 5, idle_faults=1) == Settle()
