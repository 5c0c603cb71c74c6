"""The end of a campaign: table, summary.json, best.yaml and best.sh, all from the store."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sweep.core import verl_keys as keys
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.stage import BracketRule, ConfirmRule
from sweep.core.winner import Choice, Score, Winner
from sweep.errors import StageHalted, ViewError
from sweep.purse import paid_outcomes
from sweep.report.failures import failure_lines
from sweep.report.summary import StageLine, table, write_summary
from tests.fakes import Script
from tests.fakes_store import MemoryStore
from tests.test_campaign import Bench, planned, response


def finished_campaign(tmp_path, script=None):
    bench = Bench(tmp_path, script=script)
    bench.run()
    store = MemoryStore(bench.disk)
    return bench.plan, store


def test_the_table_has_a_line_a_stage_with_baseline_and_winner(tmp_path):
    plan, store = finished_campaign(tmp_path)
    text = write_summary(plan, store, tmp_path, None).text
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["minibatch", "kl", "token_budget", "lr_lambda"]
    assert "max_num_seqs=32" in lines[3]
    assert "lr=0.00075" in lines[4]


@pytest.mark.parametrize(("searched", "cell"), [({"minibatch", "confirm"}, "given up"), ({"confirm"}, "baseline kept")])
def test_a_confirmation_that_keeps_the_base_gives_up_only_what_was_found(searched, cell):
    ended = {"minibatch": (Overrides.of({keys.MINI_BATCH: 8}), BracketRule), "confirm": (NOTHING, ConfirmRule)}
    lines = []
    for name, (settings, rule) in ended.items():
        if name in searched:
            choice = Choice(settings, settings, Score(1.0), Score(1.0), (), "said")
            lines.append(StageLine(Winner(name, choice, rule.__name__, (), ""), "area_per_second", 2, 0, (), 0, 1.0))
    assert cell in table(planned(), lines, [], Path("runs/x")).splitlines()[len(lines)]


def test_the_files_hold_the_same_as_the_store(tmp_path):
    plan, store = finished_campaign(tmp_path)
    commands = []
    write_summary(plan, store, tmp_path, lambda trial: commands.append(trial) or "#!/bin/sh\n")
    summary = json.loads((tmp_path / "summary.json").read_text())
    best = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert len(summary["stages"]) == 4
    assert best[keys.LAM] == 0.95
    assert best[keys.MAX_SEQS] == 32
    assert os.access(tmp_path / "best.sh", os.X_OK)
    assert commands[0].steps == 10000
    trained = len({r.trial.id for s in plan.stages for r in store.records(s)})
    assert summary["trials"] == trained


def test_every_failure_is_in_the_table_and_counted(tmp_path):
    def script(trial, warm):
        if trial.overrides.get(keys.LAM) == 0.99:
            return Script(dies_at=5, log="a bug")
        return Script(metrics=response(trial))

    plan, store = finished_campaign(tmp_path, script)
    summary = write_summary(plan, store, tmp_path, None)
    assert summary.failed_trials == 1
    assert "failed in lr_lambda" in summary.text
    assert "a bug" in summary.text


def test_a_trial_that_a_guard_stopped_is_told_but_is_a_result_and_no_failure(tmp_path):
    def script(trial, warm):
        if trial.overrides.get(keys.LAM) == 0.99:
            return Script(metrics=response(trial), ends_at=5, stopped_by="KL_EXPLOSION at step 5")
        return Script(metrics=response(trial))

    plan, store = finished_campaign(tmp_path, script)
    summary = write_summary(plan, store, tmp_path, None)
    assert summary.failed_trials == 0
    assert "stopped in lr_lambda" in summary.text and "KL_EXPLOSION at step 5" in summary.text


def test_failures_of_stages_that_were_not_wanted_do_not_count(tmp_path):
    def script(trial, warm):
        if trial.overrides.get(keys.LAM) == 0.99:
            return Script(dies_at=5, log="a bug")
        return Script(metrics=response(trial))

    _, store = finished_campaign(tmp_path, script)
    plan = replace(planned(), wanted=("kl",))
    assert write_summary(plan, store, tmp_path, None).failed_trials == 0


def test_failed_attempts_of_a_trial_that_went_on_are_in_the_table_and_do_not_count_as_failed_trials(tmp_path):
    failures = iter([True])

    def script(trial, warm):
        return Script(dies_at=3, log="connection reset") if next(failures, False) else Script(metrics=response(trial))

    plan, store = finished_campaign(tmp_path, script)
    summary = write_summary(plan, store, tmp_path, None)
    assert summary.failed_trials == 0
    assert "failed in minibatch, attempt 1: " in summary.text and "connection reset" in summary.text
    spent = sum(line["spent_seconds"] for line in json.loads((tmp_path / "summary.json").read_text())["stages"])
    assert spent == pytest.approx(sum(o.wall_seconds for o in paid_outcomes(plan, store)), abs=0.5)
    attempts = [a for s in plan.stages for r in store.records(s) for a in store.attempts(s, r.trial.id) if a]
    assert attempts and all(a.wall_seconds > 0 for a in attempts)


def test_failures_of_a_stage_that_was_halted_are_listed_too(tmp_path):
    bench = Bench(tmp_path, script=lambda trial, warm: Script(dies_at=5, log="a bug"))
    with pytest.raises(StageHalted):
        bench.run()
    (line,) = failure_lines(bench.plan, MemoryStore(bench.disk))
    assert line.startswith("failed in minibatch: ") and "a bug" in line


def test_the_script_is_named_only_where_it_is_written(tmp_path):
    plan, store = finished_campaign(tmp_path)
    assert "best.sh" not in write_summary(plan, store, tmp_path, None).text
    assert f"long run: {tmp_path}/best.sh" in write_summary(plan, store, tmp_path, lambda trial: "#!/bin/sh\n").text


def test_a_view_that_cannot_be_written_says_that_nothing_is_lost(tmp_path):
    plan, store = finished_campaign(tmp_path)
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(ViewError, match=r"cannot write .*summary\.json: .*run the same command again"):
        write_summary(plan, store, tmp_path, None)
