"""Clipping threshold, ids, order and settings: the pure parts of the plug-ins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sweep.core.clip_schedule import max_norm
from sweep.engines.mailbox import plain_numbers
from sweep.engines.verl.plugins.ordering import RunningIds, in_data_order, sort_key
from sweep.engines.verl.plugins.preemptions import total
from sweep.engines.verl.plugins.workers import ACTOR, CRITIC, TrialStart
from sweep.health.limits import Limits
from sweep.health.plugin_settings import PluginSettings


def test_the_clipping_threshold_decays_as_the_article_says_and_stops_at_the_floor() -> None:
    assert max_norm(1.0, 0) == 1.0
    assert max_norm(2.0, 500) == pytest.approx(2.0 * 0.999**500)
    assert max_norm(1.0, 2301) == 0.999**2301 > 0.1
    assert max_norm(1.0, 2302) == 0.1
    assert max_norm(1.0, 5000, floor=0.0) == pytest.approx(0.0067, abs=1e-4)


@pytest.mark.parametrize(("critic_warmup", "first_update"), [(0, 1), (1, 1), (20, 20)])
def test_each_engine_clips_by_the_trainers_step_although_the_actors_schedule_waits_for_the_critic(
    critic_warmup: int, first_update: int
) -> None:
    start = TrialStart(1, None, (0.999, 0.1), True, critic_warmup)
    actor, critic = start.clipping(ACTOR), start.clipping(CRITIC)
    assert actor and critic
    for step in (first_update, first_update + 1, 500):
        metric = max_norm(2.0, step - 1)
        assert actor.norm(2.0, step - first_update) == critic.norm(2.0, step - 1) == metric
    assert TrialStart(1, None, None, True, critic_warmup).clipping(ACTOR) is None


def test_ids_count_up_sort_as_text_and_start_anew() -> None:
    ids = RunningIds()
    first = [ids.uuid4() for _ in range(1200)]
    assert first == sorted(first) and len(set(first)) == 1200
    assert not any("_" in each for each in first)
    ids.restart()
    assert [ids.uuid4() for _ in range(1200)] == first


class FakeBatch:
    """Keys and the one method that verl's batches offer for changing their order."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    def reorder(self, order: list[int]) -> None:
        self.keys = [self.keys[i] for i in order]


def test_a_batch_is_ordered_by_sample_then_session_as_numbers_with_padding_last() -> None:
    keys = ["0000000002_0_0", "pad_x", "0000000001_10_0", "0000000001_9_0", "0000000001_9_1"]
    expected = ["0000000001_9_0", "0000000001_9_1", "0000000001_10_0", "0000000002_0_0", "pad_x"]
    assert in_data_order(FakeBatch(keys)).keys == expected
    assert sort_key("0000000001_9_0") < sort_key("0000000001_10_0")


def test_metrics_that_are_not_numbers_are_left_out() -> None:
    found = plain_numbers({"a": 1, "b": "x", "c": None, "d": {"e": 1}, "f": math.nan, "g": True})
    assert {k: v for k, v in found.items() if k != "f"} == {"a": 1.0, "g": 1.0}
    assert math.isnan(found["f"])


def test_a_plug_in_setting_that_nobody_reads_is_refused() -> None:
    assert PluginSettings.of({}) == PluginSettings()
    assert PluginSettings.of({"sweep": {"schedule_steps": 7, "clip_decay": None}}).schedule_steps == 7
    with pytest.raises(ValueError, match=r"no plug-in reads sweep\.schedule_step;"):
        PluginSettings.of({"sweep": {"schedule_step": 7}})


def test_limits_and_guards_are_set_by_name_and_unknown_ones_are_refused() -> None:
    limits = PluginSettings.of({"sweep": {"limits": {"kl_explosion": 0.5, "grad_band": [0.1, 2.0]}}}).limits
    assert limits == replace(Limits(), kl_explosion=0.5, grad_band=(0.1, 2.0))
    with pytest.raises(ValueError, match=r"no limit is called sweep\.limits\.kl_explosions"):
        PluginSettings.of({"sweep": {"limits": {"kl_explosions": 0.5}}})
    assert PluginSettings.of({"sweep": {"stop_on": ["NON_FINITE"]}}).stop_on == ("NON_FINITE",)
    with pytest.raises(ValueError, match="no guard stops on NAN"):
        PluginSettings.of({"sweep": {"stop_on": ["NAN"]}}).guard()


def test_clipping_is_adaptive_only_if_a_decay_is_given() -> None:
    assert PluginSettings.of({"sweep": {"clip_floor": 0.2}}).clip is None
    assert PluginSettings.of({"sweep": {"clip_decay": 0.99}}).clip == (0.99, 0.1)


def test_preemptions_are_summed_over_engines_and_absent_where_the_page_has_none() -> None:
    page = '# HELP x\nvllm:num_preemptions_total{engine="0"} 2.0\nvllm:num_preemptions_total{engine="1"} 3.0\nother 1'
    assert total(page) == 5.0
    assert total("other 1") is None
