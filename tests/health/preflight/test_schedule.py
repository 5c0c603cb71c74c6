"""Steps, epochs and the learning rate."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, Severity

from .sound import codes, only


@pytest.mark.parametrize(("epochs", "named"), [(35, False), (34, True)])
def test_epochs_that_end_before_the_steps_are_an_error(epochs: int, named: bool) -> None:
    changes = {keys.TRAIN_BATCH: 512, keys.TOTAL_EPOCHS: epochs}
    facts = Facts(dataset_rows=7473, trial_steps=490)
    assert ("EPOCHS_END_EARLY" in codes(changes, facts)) == named


def test_the_silent_end_of_gsm8k_at_step_420_is_foreseen() -> None:
    changes = {keys.TRAIN_BATCH: 512, keys.TOTAL_EPOCHS: 30}
    finding = only("EPOCHS_END_EARLY", changes, Facts(dataset_rows=7473, trial_steps=500))
    assert (finding.computed["steps"], finding.nearest) == (420, (f"{keys.TOTAL_EPOCHS}=36",))


def test_rows_after_the_filter_count_and_the_total_stands_in_for_the_trial() -> None:
    changes = {keys.TOTAL_EPOCHS: 1, keys.TOTAL_STEPS: 3}
    assert "EPOCHS_END_EARLY" in codes(changes, Facts(dataset_rows=10_000, rows_after_filter=600))
    assert "EPOCHS_END_EARLY" not in codes(changes, Facts(dataset_rows=10_000, rows_after_filter=768))


@pytest.mark.parametrize(("total", "named"), [(499, True), (500, False), (10_000, False)])
def test_verls_total_reaches_the_trials_steps(total: int, named: bool) -> None:
    assert ("TOTAL_STEPS_LT_TRIAL" in codes({keys.TOTAL_STEPS: total}, Facts(trial_steps=500))) == named


@pytest.mark.parametrize(("warmup", "named"), [(499, False), (500, True), (-1, False)])
def test_a_warm_up_as_long_as_the_trial_is_a_warning(warmup: int, named: bool) -> None:
    assert ("WARMUP_OUTLASTS_TRIAL" in codes({keys.ACTOR_WARMUP_STEPS: warmup}, Facts(trial_steps=500))) == named


@pytest.mark.parametrize(("ratio", "named"), [(0.1, True), (0.05, True), (0.0499, False), (0.0, False)])
def test_a_warm_up_by_ratio_is_a_share_of_the_whole_schedule(ratio: float, named: bool) -> None:
    changes = {keys.ACTOR_WARMUP_STEPS: -1, keys.ACTOR_WARMUP_RATIO: ratio, keys.SCHEDULE_STEPS: 10_000}
    assert ("WARMUP_OUTLASTS_TRIAL" in codes(changes, Facts(trial_steps=500))) == named
    assert "WARMUP_OUTLASTS_TRIAL" not in codes({**changes, keys.ACTOR_WARMUP_STEPS: 10}, Facts(trial_steps=500))


def test_without_a_schedule_of_its_own_the_warm_up_is_a_share_of_verls_total() -> None:
    changes = {keys.ACTOR_WARMUP_RATIO: 0.1, keys.TOTAL_STEPS: 10_000}
    found = only("WARMUP_OUTLASTS_TRIAL", changes, Facts(trial_steps=500))
    assert (found.computed["warmup"], found.keys[0]) == (1000, keys.ACTOR_WARMUP_RATIO)
    assert "WARMUP_OUTLASTS_TRIAL" not in codes({keys.ACTOR_WARMUP_RATIO: 0.1}, Facts(trial_steps=500))


@pytest.mark.parametrize(("first", "named"), [(499, False), (500, True), (0, False)])
def test_a_critic_that_trains_alone_to_the_end_is_an_error(first: int, named: bool) -> None:
    assert ("ACTOR_NEVER_TRAINS" in codes({keys.CRITIC_WARMUP: first}, Facts(trial_steps=500))) == named


@pytest.mark.parametrize(("ratio", "named"), [(0.0, False), (0.99, False), (1.0, True), (-0.1, True)])
def test_the_warm_up_ratio_is_a_share(ratio: float, named: bool) -> None:
    assert ("OUT_OF_RANGE" in codes({keys.ACTOR_WARMUP_RATIO: ratio})) == named


def test_a_cosine_that_ends_with_the_trial_is_remarked_on() -> None:
    short = {keys.ACTOR_SCHEDULER: "cosine", keys.TOTAL_STEPS: 500}
    facts = Facts(trial_steps=500)
    assert only("COSINE_COMPRESSED", short, facts).severity is Severity.INFO
    assert "COSINE_COMPRESSED" not in codes({**short, keys.TOTAL_STEPS: 10_000}, facts)
    assert "COSINE_COMPRESSED" not in codes({**short, keys.SCHEDULE_STEPS: 10_000}, facts)


@pytest.mark.parametrize(
    ("rate", "code"),
    [
        (5e-7, None),
        (5e-6, None),
        ("1e-6", None),
        (4.9e-7, "LR_OUTSIDE_SAFE_RANGE"),
        (5.1e-6, "LR_OUTSIDE_SAFE_RANGE"),
        (0.0, "OUT_OF_RANGE"),
        (-1e-6, "OUT_OF_RANGE"),
    ],
)
def test_the_learning_rate_has_a_safe_range(rate: object, code: str | None) -> None:
    assert codes({keys.ACTOR_LR: rate}) == ([code] if code else [])
