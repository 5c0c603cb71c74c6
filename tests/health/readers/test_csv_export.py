"""CSV exports in their forms."""

from __future__ import annotations

import math

import pytest

from sweep.errors import ConfigError
from sweep.health.readers.csv_export import read_csv


def read(text: str):  # type: ignore[no-untyped-def]
    return read_csv(text.encode().splitlines(), "x")


def test_an_empty_cell_is_absent_and_nan_is_a_value() -> None:
    (run,) = read("step,a,b\n1,0.5,\n2,nan,1.5\n")
    assert [set(m) for _, m in run.table.rows()] == [{"a"}, {"a", "b"}]
    assert math.isnan(dict(run.table.rows())[2]["a"])


def test_a_run_column_tells_runs_apart() -> None:
    found = read("seed,step,a\n1,1,0.5\n2,1,0.25\n1,2,0.75\n")
    assert [(r.label, list(r.table.rows())) for r in found] == [
        ("x seed=1", [(1, {"a": 0.5}), (2, {"a": 0.75})]),
        ("x seed=2", [(1, {"a": 0.25})]),
    ]


def test_headings_of_a_tracker_hold_run_and_metric() -> None:
    text = '"Step","first - a/norm","first - a/norm__MIN","second - a/norm"\n"1","0.5","0.4",""\n'
    (run,) = read(text + '"2","0.6","0.4","0.7"\n')[:1]
    assert run.label == "x first" and list(run.table.columns) == ["a/norm"]
    assert [r.label for r in read(text + '"2","0.6","0.4","0.7"\n')] == ["x first", "x second"]


def test_one_measurement_a_row_becomes_columns() -> None:
    (run,) = read("metric,step,value\na,1,0.5\na,2,0.75\nb,1,-1\n")
    assert list(run.table.rows()) == [(1, {"a": 0.5, "b": -1.0}), (2, {"a": 0.75})]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found(delimiter: str) -> None:
    (run,) = read(delimiter.join(["step", "a"]) + "\n" + delimiter.join(["1", "0.5"]))
    assert list(run.table.rows()) == [(1, {"a": 0.5})]


def test_a_byte_order_mark_and_an_open_quote_do_no_harm() -> None:
    (run,) = read('\ufeffstep,a\n1,"0.5\n2,0.25\n')
    assert list(run.table.rows()) == [(1, {"a": 0.5}), (2, {"a": 0.25})]


def test_rows_without_a_step_are_counted() -> None:
    (run,) = read("step,a\n1,0.5\nx,0.5\n,\n2,0.7\n")
    assert len(run.table) == 2 and run.notes[0].startswith("1 rows")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "step,a\n", "step,a\nx,y\n"])
def test_a_file_without_steps_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read(text)
