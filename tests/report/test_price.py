"""The price of a campaign before it starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.config import compose, to_plan
from sweep.core.overrides import NOTHING
from sweep.core.progress import Record
from sweep.core.trial import Measure, Trial
from sweep.report.price import Outlook, price_text, stage_prices, step_seconds
from tests.stages.histories import died, line

TRAINING = Measure.TRAINING
GPU = to_plan(compose(["model=qwen2.5-7b", "cluster.slots=2"]))
CPU = to_plan(compose(["model=tiny"]))


def records(count: int, seconds: float) -> tuple[Record, ...]:
    return tuple(Record(Trial(NOTHING, seed, 40), NOTHING, NOTHING, "", line(0.4, seconds)) for seed in range(count))


def test_the_tiny_campaign_runs_eighteen_trials_at_most():
    prices = stage_prices(CPU, {})
    assert sum(p.most for p in prices) == 18
    assert 12 <= sum(p.fewest for p in prices) <= 18


def test_what_is_frozen_or_ended_costs_nothing_more():
    whole = {p.stage: p for p in stage_prices(CPU, {})}
    part = {
        p.stage: p for p in stage_prices(CPU, {"minibatch": Outlook(frozen=True), "kl": Outlook(known=records(2, 1.0))})
    }
    assert (part["minibatch"].fewest, part["minibatch"].most) == (0, 0)
    assert part["kl"].most == whole["kl"].most - 1  # one of the two was known from the start
    assert "frozen" in price_text(CPU, list(part.values()), {})


def test_times_are_measured_or_said_to_be_unknown():
    assert step_seconds({"minibatch": ()}) == {}
    ended = (*records(3, 2.0), Record(Trial(NOTHING, 9, 40), NOTHING, NOTHING, "", died()))
    assert step_seconds({"minibatch": ended}) == {TRAINING: pytest.approx(2.0)}
    assert "unknown" in price_text(CPU, stage_prices(CPU, {}), {})


def test_hours_are_shared_by_the_trials_at_once_and_gpu_hours_are_not():
    text = price_text(GPU, stage_prices(GPU, {})[-1:], {TRAINING: 36.0})
    confirm = 6 * 500 * 36.0 / 3600
    hours, gpu_hours = text.splitlines()[1].split()[-2:]
    assert float(hours) == pytest.approx(confirm / 2)
    assert float(gpu_hours) == pytest.approx(confirm * GPU.model.gpus, rel=0.02)
    assert "none" in price_text(CPU, stage_prices(CPU, {}), {TRAINING: 1.0})
    assert "nothing was started" in text


def test_without_a_number_of_slots_the_hours_are_those_of_one_trial_at_a_time_and_said_to_be():
    prices = stage_prices(GPU, {})
    known = {TRAINING: 36.0}
    one = price_text(replace(GPU, slots=1), prices, known)
    any_number = price_text(replace(GPU, slots=0), prices, known)
    assert any_number.splitlines()[:-2] == one.splitlines()[:-2]
    assert "one trial at a time" in one
    assert "as many trials at once as the cluster has room for, the hours are those of one at a time" in any_number


def test_a_stage_alone_is_priced_alone():
    alone = replace(CPU, wanted=("kl",))
    assert [p.stage for p in stage_prices(alone, {})] == ["kl"]
