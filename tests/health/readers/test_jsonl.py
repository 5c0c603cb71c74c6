"""JSON lines of verl's file logger and of trackers."""

from __future__ import annotations

import json
import math

import pytest

from sweep.errors import ConfigError
from sweep.health.readers.jsonl import read_jsonl


def lines(*rows: object) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def test_a_null_of_the_file_logger_is_a_value_that_is_not_finite() -> None:
    (run,) = read_jsonl(lines({"step": 1, "data": {"a": 1.5, "b": None}}))
    assert math.isnan(dict(run.table.rows())[1]["b"])


def test_a_null_of_a_flat_row_is_no_value() -> None:
    (run,) = read_jsonl(lines({"step": 1, "a": 1.5, "b": None}))
    assert list(run.table.rows()) == [(1, {"a": 1.5})]


@pytest.mark.parametrize("field", ["step", "global_step", "_step", "training/global_step", "trainer/global_step"])
def test_a_flat_row_keeps_its_step_under_any_usual_name(field: str) -> None:
    (run,) = read_jsonl(lines({field: 3, "reward": 0.5, "name": "x", "done": True}))
    assert list(run.table.rows()) == [(3, {"reward": 0.5})]


def test_flat_rows_of_one_step_are_one_row() -> None:
    (run,) = read_jsonl(lines({"step": 1, "a": 1.0}, {"step": 1, "b": 2.0}, {"step": 2, "a": 3.0}))
    assert list(run.table.rows()) == [(1, {"a": 1.0, "b": 2.0}), (2, {"a": 3.0})]


def test_text_counts_only_as_nan_or_infinity() -> None:
    (run,) = read_jsonl(lines({"step": 1, "data": {"a": "nan", "b": "-inf", "c": "1.5", "d": [1]}}))
    values = dict(run.table.rows())[1]
    assert math.isnan(values["a"]) and values["b"] == -math.inf and set(values) == {"a", "b"}


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    (run,) = read_jsonl([b'{"step": 1, "data": {"a": 1' + b"0" * 400 + b', "b": 1e999}}'])
    assert dict(run.table.rows())[1] == {"a": math.inf, "b": math.inf}


def test_a_line_that_was_cut_is_left_out_and_counted() -> None:
    good = lines({"step": 1, "data": {"a": 1.0}}, {"step": 2, "data": {"a": 2.0}})
    (run,) = read_jsonl([*good, good[0][:15], b"", b"\xff\xfe", b"[1, 2]"])
    assert len(run.table) == 2 and run.notes[0].startswith("3 lines")


def test_two_runs_in_one_file_are_told_apart() -> None:
    one = lines(*({"step": n, "data": {"a": float(n)}} for n in range(1, 4)))
    assert [(run.label, len(run.table)) for run in read_jsonl(one * 2, "x")] == [("x run 1", 3), ("x run 2", 3)]


def test_rows_without_a_step_are_refused_with_their_fields() -> None:
    with pytest.raises(ConfigError, match="budget"):
        read_jsonl(lines({"budget": 2048, "gen_tok_s": [1, 2]}))


@pytest.mark.parametrize("step", [True, "1", None, [1], 1e300, -1e300])
def test_what_is_no_step_is_not_taken_for_one(step: object) -> None:
    with pytest.raises(ConfigError):
        read_jsonl(lines({"step": step, "data": {"a": 1.0}}))
