"""Candidates that can be looked at before a stage begins."""

from __future__ import annotations

import pytest

from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.stages.samples import out_of_range, samples, searched_keys

PLAN = to_plan(compose(["model=tiny"]))


def test_a_knob_is_looked_at_where_it_stands_and_at_the_ends_of_its_range():
    stage = PLAN.stage("lr_lambda")
    rates, lams = samples(stage, PLAN.base.merged({keys.ACTOR_LR: 9.0}))
    knobs = {knob.key: knob for knob in stage.knobs}
    lr, lam = knobs[keys.ACTOR_LR], knobs[keys.LAM]
    assert [s.get(keys.ACTOR_LR) for s in rates] == pytest.approx([lr.high, lr.low, lr.high])
    assert [s.get(keys.LAM) for s in lams][1:] == pytest.approx([lam.low, lam.high])


def test_candidates_have_what_the_stage_fixes_and_a_mini_batch_its_train_batch():
    (coefficients,) = samples(PLAN.stage("kl"), PLAN.base)
    assert all(s.get(keys.KL_TYPE) == "band" for s in coefficients)
    ((batch,),) = samples(PLAN.stage("minibatch"), PLAN.base)
    assert PLAN.base.merged(batch).get(keys.TRAIN_BATCH) % PLAN.base.merged(batch).get(keys.MINI_BATCH) == 0


def test_a_ladder_shows_its_rungs_and_a_confirmation_what_runs_beside():
    (rungs,) = samples(PLAN.stage("token_budget"), PLAN.base)
    assert len(rungs) > 2 and all(keys.MAX_SEQS in s for s in rungs)
    assert list(samples(PLAN.stage("confirm"), PLAN.base)) == []
    plan = to_plan(compose(["model=tiny", '+stages.confirm.beside.theirs=["algorithm.lam=0.9"]']))
    (((theirs),),) = samples(plan.stage("confirm"), plan.base)
    assert theirs.get(keys.LAM) == 0.9


def test_the_keys_that_a_stage_compares_are_those_of_its_knobs_or_rungs():
    assert searched_keys(PLAN.stage("lr_lambda")) == {keys.ACTOR_LR, keys.LAM}
    assert searched_keys(PLAN.stage("token_budget")) == {keys.MAX_BATCHED_TOKENS, keys.MAX_SEQS}


def test_a_value_outside_its_range_is_said_before_the_stage_begins():
    stage = PLAN.stage("lr_lambda")
    assert list(out_of_range(stage, PLAN.base)) == []
    (said,) = out_of_range(stage, PLAN.base.merged({keys.ACTOR_LR: 9.0}))
    high = next(knob.high for knob in stage.knobs if knob.key == keys.ACTOR_LR)
    assert said.startswith("stage lr_lambda: lr 9 lies outside ") and f" to {high:g}, where it is searched" in said
    assert list(out_of_range(PLAN.stage("token_budget"), PLAN.base.merged({keys.MAX_BATCHED_TOKENS: 1}))) == []
