"""Values of a YAML file: each has the type and lies in the range of the field that it fills, or is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from sweep.core.within import Within
from sweep.errors import ConfigError
from sweep.yaml_values import built, listing, number, section


@dataclass(frozen=True)
class Sample:
    count: Annotated[int, Within(low=1)]
    share: Annotated[float, Within(low=0, high=1, open_high=True)] = 0.5
    factor: Annotated[float | None, Within(low=0, open_low=True)] = None
    name: str = "x"
    on: bool = False


def test_values_that_fit_arrive_and_a_whole_number_may_be_written_with_a_point():
    assert built(Sample, "f", {"count": 3.0, "share": 0, "factor": 2}) == Sample(3, 0, 2)
    assert built(Sample, "f", {"count": 1, "factor": None, "on": True}) == Sample(1, on=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"count": 0}, "f.count must be at least 1, got 0"),
        ({"count": True}, "f.count must be a whole number, got true"),
        ({"count": 1.5}, "f.count must be a whole number, got 1.5"),
        ({"count": None}, "f.count must be a whole number, got null"),
        ({"count": "1"}, "f.count must be a whole number, got '1'"),
        ({"count": 1, "share": 1}, "f.share must be at least 0 and below 1, got 1"),
        ({"count": 1, "share": float("nan")}, "f.share must be a number, got nan"),
        ({"count": 1, "factor": 0}, "f.factor must be above 0, got 0"),
        ({"count": 1, "factor": "x"}, "f.factor must be a number or null, got 'x'"),
        ({"count": 1, "name": 3}, "f.name must be a text, got 3"),
        ({"count": 1, "on": 1}, "f.on must be true or false, got 1"),
        ({}, "f lacks count; known: count, factor, name, on, share"),
        ({"cuont": 1}, "f: unknown key cuont; known: count, factor, name, on, share"),
        ([1], r"f must be a section of key: value lines, got \[1\]"),
    ],
)
def test_a_value_that_does_not_fit_is_named(content, says):
    with pytest.raises(ConfigError, match=f"^{says}$"):
        built(Sample, "f", content)


def test_what_a_caller_gives_is_no_key_of_the_section():
    assert built(Sample, "f", {}, count=2) == Sample(2)
    with pytest.raises(ConfigError, match="unknown key count"):
        built(Sample, "f", {"count": 1}, count=2)


def test_an_empty_section_or_list_has_no_entries_and_a_text_is_no_list():
    assert section("f", None) == {} and listing("f", None) == []
    assert listing("f", ["a"]) == ["a"] and listing("f", [[1, "b"]], list) == [[1, "b"]]
    for content, kind, says in (
        ("ab", str, "f must be a list"),
        ([1], str, "f, entry 1 must be a text"),
        ([1], list, "f, entry 1 must be a list"),
    ):
        with pytest.raises(ConfigError, match=says):
            listing("f", content, kind)


def test_both_ends_of_a_range():
    within = Within(low=0, high=1, open_low=True)
    assert number("f", 1, within) == 1
    for value in (0, 1.01, float("nan")):
        with pytest.raises(ConfigError, match="f must be"):
            number("f", value, within)
