"""The benchmark of decisions: its counting is checked by hand, its methods are played once in a small world."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from benchmarks.decisions.campaigns import METHODS, PURSE_STEPS, Campaign, play_one
from benchmarks.decisions.journal import Job, Journal
from benchmarks.decisions.ours import OURS, stages
from benchmarks.decisions.shares import Share
from benchmarks.decisions.summary import headline, summarize, table
from benchmarks.decisions.verdicts import CVS
from benchmarks.decisions.worlds import BASE, KINDS, world

from sweep.core.overrides import NOTHING
from sweep.engines.rehearsal.surfaces import best_settings

PRODUCT = "staged, as shipped"


def campaign(method: str, cv: float, number: int, *path: tuple[int, float]) -> Campaign:
    return Campaign(method, "separable", cv, number, ((0, 0.5), *path))


def made_up(ours: tuple[int, float], peer: tuple[int, float]) -> dict[str, Any]:
    """A summary in which every method of ours ends at `ours` and every peer gets to `peer`."""
    found = [campaign(m, cv, n, ours if m in OURS else peer) for m in METHODS for cv in CVS for n in range(4)]
    return summarize([], [], found)


def ratio(summary: dict[str, Any], how: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in summary["step_ratio"] if r["method"] == PRODUCT)[how]
    return found


def test_a_share_has_wilsons_interval() -> None:
    share = Share.of([True] * 8 + [False] * 2)
    assert share.value == 0.8
    assert share.interval == pytest.approx((0.490, 0.943), abs=1e-3)
    assert Share.of([False] * 20).interval == pytest.approx((0.0, 0.161), abs=1e-3)


def test_the_step_ratio_is_ours_over_what_the_best_peer_needs_to_be_as_good() -> None:
    found = ratio(made_up((3000, 0.99), (9000, 0.985)), "by_share_within_2pct")
    assert found["ratio"] == pytest.approx(3000 / 9000, abs=1e-4)
    assert not found["upper_bound"]
    assert found["low"] == found["high"] == found["ratio"]


def test_a_peer_that_is_never_as_good_counts_with_its_whole_purse() -> None:
    found = ratio(made_up((3000, 0.99), (9000, 0.97)), "by_share_within_2pct")
    assert found["ratio"] == pytest.approx(3000 / PURSE_STEPS)
    assert found["upper_bound"]


def test_a_method_that_is_never_within_two_percent_has_no_ratio() -> None:
    summary = made_up((3000, 0.97), (9000, 0.97))
    assert ratio(summary, "by_share_within_2pct")["ratio"] is None
    assert ratio(summary, "by_mean_regret")["ratio"] == pytest.approx(3000 / 9000, abs=1e-4)
    assert "never within 2 %" in table(summary)


def test_the_incumbent_after_some_steps_is_the_last_one_paid_for() -> None:
    path = campaign("random", 0.03, 0, (500, 0.6), (1500, 0.9))
    assert [path.quality_at(at) for at in (0, 499, 500, 1499, 1500, 9000)] == [0.5, 0.5, 0.6, 0.6, 0.9, 0.9]


def test_the_headline_names_the_worst_cell_of_each_number() -> None:
    def cell(cv: float, effect: float, better: float, worse: float, covered: float) -> dict[str, Any]:
        shares = {"better": {"value": better}, "worse": {"value": worse}, "covered": {"value": covered}}
        return {"cv": cv, "true_effect": effect, "shared_noise": 0.0, **shares}

    summary = made_up((3000, 0.99), (9000, 0.985))
    summary["verdicts"] = [
        cell(0.03, 0.0, 0.01, 0.02, 0.96),
        cell(0.05, 0.0, 0.02, 0.02, 0.94),
        cell(0.03, 0.1, 0.99, 0.0, 0.97),
        cell(0.05, 0.1, 0.83, 0.0, 0.95),
        cell(0.20, 0.1, 0.12, 0.0, 0.95),
    ]
    found = headline(summary, PRODUCT)
    assert found["wrong_move_rate"] == 0.04
    assert found["power_10pct"] == 0.83
    assert found["coverage"] == 0.97
    assert found["step_ratio_to_best_peer"] == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_meets_the_same_world_and_the_defaults_are_not_its_best(kind: str) -> None:
    one, two = world(kind, 0.05, 3), world(kind, 0.05, 3)
    assert one.surface == two.surface
    assert one.run(NOTHING, 1) == two.run(NOTHING, 1)
    assert 0.1 < one.quality(NOTHING) < 0.999
    assert one.quality(best_settings(one.surface, 500)[0]) == pytest.approx(1.0)


def test_a_trial_is_paid_for_once() -> None:
    here = world("separable", 0.05, 0)
    here.run(NOTHING, 1)
    here.run(BASE, 1)
    assert here.spent_steps == 500
    here.run(NOTHING, 2)
    assert here.spent_steps == 1000


def test_the_shipped_stages_are_the_four_of_the_method() -> None:
    assert [s.name for s in stages()] == ["minibatch", "kl", "token_budget", "lr_lambda"]


@pytest.mark.parametrize("method", [m for m in METHODS if m in OURS] + ["random", "step-wise TPE"])
def test_a_method_plays_to_its_end_within_its_purse_and_improves_on_the_defaults(method: str) -> None:
    played = [play_one(method, "saturating", 0.03, n) for n in range(2)]
    assert all(c.steps > 0 for c in played)
    assert all(c.steps <= PURSE_STEPS for c in played if method not in OURS)
    assert sum(c.quality for c in played) > sum(c.path[0][1] for c in played)


@pytest.mark.slow
def test_asha_by_ray_tunes_own_scheduler_pays_for_partial_trials() -> None:
    played = play_one("ASHA + OptunaSearch", "saturating", 0.03, 0)
    assert played.quality > played.path[0][1]
    assert any(steps % 500 for steps, _ in played.path)


def test_an_interrupted_benchmark_goes_on_where_it_was(tmp_path: Path) -> None:
    path, played = tmp_path / "raw" / "run.jsonl", []

    def play(job: Job) -> int:
        played.append(job)
        if job[1] == 3 and len(played) < 5:
            raise KeyboardInterrupt
        return 10 * int(job[1])

    jobs = [("part", n) for n in range(5)]
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        Journal(path, resume=False).run(pool, play, jobs)
    known = len(path.read_text().splitlines())
    assert known >= 3
    played.clear()
    played.extend([("", 0)] * 5)
    with ThreadPoolExecutor(1) as pool:
        assert Journal(path, resume=True).run(pool, play, jobs) == [0, 10, 20, 30, 40]
    assert len(played) == 5 + 5 - known
    again = Journal(path, resume=True, again=lambda job: job[1] == 2)
    with ThreadPoolExecutor(1) as pool:
        assert again.run(pool, play, jobs) == [0, 10, 20, 30, 40]
    assert played[-1] == ("part", 2)
