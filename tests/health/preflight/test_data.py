"""Rows, columns, rewards and loggers."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, Severity

from .sound import codes, only


@pytest.mark.parametrize(("rows", "named"), [(255, True), (256, False)])
def test_data_that_does_not_fill_one_batch_is_an_error(rows: int, named: bool) -> None:
    assert ("EMPTY_DATALOADER" in codes({}, Facts(dataset_rows=rows))) == named


def test_rows_after_the_filter_decide_when_they_are_known() -> None:
    changes: dict[str, object] = {keys.TRAIN_BATCH: 1024, keys.FILTER_PROMPTS: True}
    facts = Facts(dataset_rows=1100, rows_after_filter=830)
    assert only("EMPTY_DATALOADER", changes, facts).nearest == (f"{keys.TRAIN_BATCH}=768",)


@pytest.mark.parametrize(("rows", "named"), [(307, True), (308, False)])
def test_few_rows_before_an_unknown_filter_are_a_warning(rows: int, named: bool) -> None:
    found = codes({keys.FILTER_PROMPTS: True}, Facts(dataset_rows=rows))
    assert ("DATALOADER_MAY_BE_EMPTY" in found) == named
    assert "DATALOADER_MAY_BE_EMPTY" not in codes({}, Facts(dataset_rows=rows))


def test_the_dropped_share_is_told() -> None:
    shares = [
        only("ROWS_DROPPED", {keys.TRAIN_BATCH: train, keys.TOTAL_EPOCHS: 99}, Facts(dataset_rows=7473)).computed
        for train in (256, 512)
    ]
    assert [round(float(str(share["dropped_share"])), 3) for share in shares] == [0.007, 0.041]
    assert "ROWS_DROPPED" not in codes({}, Facts(dataset_rows=512))


def test_an_overlong_prompt_that_would_end_the_run_is_remarked_on() -> None:
    assert only("OVERLONG_PROMPT_RAISES", {keys.TRUNCATION: "error"}).severity is Severity.INFO
    assert "OVERLONG_PROMPT_RAISES" not in codes({keys.TRUNCATION: "left"})
    assert "OVERLONG_PROMPT_RAISES" not in codes({keys.TRUNCATION: "error", keys.FILTER_PROMPTS: True})


def test_columns_that_verl_reads_must_be_there() -> None:
    finding = only("COLUMNS_MISSING", {}, Facts(dataset_columns=frozenset({"question", "data_source"})))
    assert finding.computed["missing"] == ["prompt", "reward_model"]
    whole = frozenset({"prompt", "data_source", "reward_model"})
    assert codes({}, Facts(dataset_columns=whole)) == []
    assert "COLUMNS_MISSING" in codes({keys.PROMPT_KEY: "messages"}, Facts(dataset_columns=whole))


@pytest.mark.parametrize(("source", "named"), [("openai/gsm8k", False), ("aime2024", False), ("my/set", True)])
def test_a_source_without_a_built_in_reward_needs_one_of_its_own(source: str, named: bool) -> None:
    facts = Facts(data_sources=frozenset({source}))
    assert ("REWARD_NOT_IMPLEMENTED" in codes({}, facts)) == named
    assert "REWARD_NOT_IMPLEMENTED" not in codes({keys.REWARD_PATH: "/r.py"}, facts)


def test_a_reward_that_does_not_load_is_an_error() -> None:
    facts = Facts(reward_error="SyntaxError: invalid syntax")
    assert "SyntaxError" in only("REWARD_NOT_LOADABLE", {keys.REWARD_PATH: "/r.py"}, facts).what


def test_files_that_are_missing_or_of_another_kind_are_errors() -> None:
    assert "FILE_MISSING" in codes({}, Facts(missing_files={keys.TRAIN_FILES: "no such file"}))
    assert only("FILE_FORMAT", {keys.TRAIN_FILES: ["/d/a.csv", "/d/b.parquet"]}).severity is Severity.ERROR


def test_a_logger_that_is_not_installed_is_an_error_that_leaves_the_others() -> None:
    finding = only(
        "LOGGER_NOT_INSTALLED", {keys.LOGGER: ["console", "wandb"]}, Facts(missing_modules=frozenset({"wandb"}))
    )
    assert finding.nearest == (f"{keys.LOGGER}=[console]",)
