"""Growing tables: gaps, blocks, resumed runs, repeated steps, and the limit on memory."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import ConfigError
from sweep.health import table_builder
from sweep.health.metric_table import MetricTable
from sweep.health.table_builder import BLOCK_ROWS, TableBuilder

ROWS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.dictionaries(st.sampled_from("abcd"), st.floats(allow_nan=False, allow_infinity=True), min_size=1),
    ),
    max_size=40,
)


def built(rows: list[tuple[int, dict[str, float]]]) -> MetricTable:
    builder = TableBuilder()
    for step, metrics in rows:
        builder.add_pairs(step, metrics.items())
    return builder.finish()


@given(ROWS)
def test_steps_that_come_once_each_build_the_same_table_as_from_rows(rows: list[tuple[int, dict[str, float]]]) -> None:
    once = list(dict(rows).items())
    assert list(built(once).rows()) == list(MetricTable.from_rows(once).rows())


def test_a_table_of_several_blocks_keeps_every_value() -> None:
    rows = [(n, {"a": float(n), **({"b": -float(n)} if n % 7 == 0 else {})}) for n in range(3 * BLOCK_ROWS)]
    assert list(built(rows).rows()) == rows


def test_further_metrics_of_a_known_step_are_added_to_it() -> None:
    assert next(iter(built([(1, {"a": 1.0}), (2, {"a": 2.0}), (1, {"b": 5.0})]).rows())) == (1, {"a": 1.0, "b": 5.0})


def test_a_resumed_run_replaces_what_its_first_life_logged_from_there_on() -> None:
    builder = TableBuilder()
    for step in (1, 2, 3, 4, 5):
        builder.add_pairs(step, [("a", float(step))])
    for step in (3, 4):
        builder.add_pairs(step, [("a", 10.0 * step)])
    assert builder.rewound_to == [3]
    assert [(s, m["a"]) for s, m in builder.finish().rows()] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


def test_a_last_step_that_is_logged_twice_keeps_the_later_values() -> None:
    builder = TableBuilder()
    builder.add_pairs(1, [("a", 1.0), ("b", 1.0)])
    builder.add_pairs(1, [("a", 2.0)])
    assert builder.repeated_rows == 1 and builder.rewound_to == []
    assert list(builder.finish().rows()) == [(1, {"a": 2.0, "b": 1.0})]


def test_nan_is_kept_as_a_value() -> None:
    series = built([(1, {"a": 1.0}), (2, {"a": math.nan})]).series("a")
    assert series is not None and series.first_bad_step == 2


def test_a_log_beyond_the_limit_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_builder, "MAX_VALUES", 10)
    builder = TableBuilder()
    for step in range(10):
        builder.add_pairs(step, [("a", 0.0)])
    with pytest.raises(ConfigError, match="tail -c 1G"):
        builder.add_pairs(10, [("a", 0.0)])
