"""Bounds of what a stage may run: whatever the trials say, its rule stays within them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.core.stage import LadderRule, SearchRule
from sweep.stages.bounds import bounds
from tests.stages.histories import line, play

START_SHARE = 0.6
PLANS = {
    "shipped": to_plan(compose(["model=qwen2.5-7b", "confirm.retest=true"])),
    "tiny": to_plan(compose(["model=tiny"])),
    "by verdicts": to_plan(
        compose(["model=tiny", "budget.seeds=3", "stages.minibatch.rule=eta", "stages.lr_lambda.rule=ladder"])
    ),
    "article": to_plan(compose(["stages.minibatch.rule=article"])),
    "proven": to_plan(compose(["budget.seeds=3", "stages.minibatch.bracket.prove=true"])),
}
CASES = [(n, s) for n, p in PLANS.items() for s in p.stages if not isinstance(s.rule, SearchRule) and s.knobs]


@pytest.mark.parametrize(("name", "stage"), CASES, ids=[f"{n} {s.name}" for n, s in CASES])
@settings(max_examples=6, deadline=None)
@given(luck=st.integers(0, 10**6), spread=st.sampled_from([0.001, 0.3]))
def test_no_history_without_deaths_needs_more_or_fewer_trials(name, stage, luck, spread):
    plan = PLANS[name]
    draw = random.Random(luck)

    def answer(proposal, overrides):
        rates = {
            "sweep/rollout_tokens_per_s": 100 * (1 + spread * draw.random()),
            "actor/perf/max_memory_allocated_gb": 20 * (1 + spread * draw.random()),
        }
        return line(0.4 * (1 + spread * draw.random()), 2.0 * (1 + spread * draw.random()), **rates)

    played = play(stage, plan.base, answer, seeds=plan.seeds)
    fewest, most = bounds(stage, plan.base)
    assert fewest <= len(played.records) <= most


def test_a_ladder_of_rungs_whose_memory_jumps_stays_within_its_bounds():
    stage = PLANS["shipped"].stage("token_budget")
    assert isinstance(stage.rule, LadderRule) and stage.rule.rollback is not None
    roomy = replace(stage, budget=replace(stage.budget, trials=30))

    def answer(proposal, overrides):
        jumps = proposal.settings.items and overrides.get(keys.MEMORY_UTILIZATION) == START_SHARE
        rate = 100.0 * math.log(overrides.get(keys.MAX_BATCHED_TOKENS) * overrides.get(keys.MAX_SEQS))
        peak = 30.0 if jumps else 10.0
        series = {"sweep/rollout_tokens_per_s": rate, "actor/perf/max_memory_allocated_gb": peak}
        return line(0.4, 2.0, **series)

    lowest = {keys.MAX_BATCHED_TOKENS: 2048, keys.MAX_SEQS: 64, keys.MEMORY_UTILIZATION: START_SHARE}
    base = PLANS["shipped"].base.merged(lowest)
    rungs = len(stage.rule.ladders[0].rungs)
    assert 1 + rungs < len(play(roomy, base, answer).records) <= bounds(roomy, base)[1] == 1 + 2 * rungs
    assert bounds(stage, base)[1] == stage.budget.most_trials
