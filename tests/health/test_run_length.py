"""Planned steps against what a trial and its windows need."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.run_length import planned_steps, run_length


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "total", "steps"),
    [(7473, 512, 15, None, 210), (7473, 512, 30, 500, 420), (7473, 512, 100, 500, 500), (100, 512, 10, None, 0)],
)
def test_whole_batches_an_epoch_and_no_more_than_the_total(
    rows: int, batch: int, epochs: int, total: int | None, steps: int
) -> None:
    assert planned_steps(rows, batch, epochs, total) == steps


def test_a_run_that_ends_early_is_told_with_the_epochs_that_would_do() -> None:
    (finding,) = run_length({keys.TRAIN_BATCH: "512", keys.TOTAL_EPOCHS: "15"}, 7473, 500)
    assert finding.code is Code.WINDOW_EXCEEDS_RUN
    assert dict(finding.figures) == {"computed_total_steps": 210, "steps_per_epoch": 14, "epochs_needed": 36}


@pytest.mark.parametrize(("wanted", "short"), [(210, False), (211, True)])
def test_exactly_enough_is_enough(wanted: int, short: bool) -> None:
    settings = {keys.TRAIN_BATCH: 512, keys.TOTAL_EPOCHS: 15}
    assert bool(run_length(settings, 7473, wanted)) is short


def test_a_total_below_the_trial_is_told_too() -> None:
    settings = {keys.TRAIN_BATCH: 512, keys.TOTAL_EPOCHS: 100, keys.TOTAL_STEPS: 100}
    (finding,) = run_length(settings, 7473, 500)
    assert "plateau" in finding.seen


def test_defaults_are_verl_own() -> None:
    (finding,) = run_length({}, 7473, 500)
    assert dict(finding.figures)["computed_total_steps"] == 7473 // 1024 * 30


def test_a_batch_larger_than_the_dataset_has_no_epochs_that_would_do() -> None:
    (finding,) = run_length({keys.TRAIN_BATCH: 512}, 100, 500)
    assert "epochs_needed" not in dict(finding.figures)
