"""Overrides: what is equal is equal, and every value reaches Hydra's parser as it was written."""

from __future__ import annotations

import math

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.overrides import Overrides, Struct, content_hash, freeze, is_interpolation, literal, thaw

AWKWARD = [
    "kl 0.001 (retry)", "lr#2", "调参", "a&b", "it's", "/tmp/ends\\", "mlx5_0:1,mlx5_3:1", "~x", "", "two\nlines",
    "runs/epoch=3-step=900.ckpt", "{a: 1}", "[1,2]", "null", "true", "1e-3", "a|b", "50%", "@x", '"quoted"', "\\'",
    "$x",
    "\\\\", " lead", "tab\t", "a\\b'c\\'", "!",
]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\x00"), max_size=20),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True), inner, max_size=3),
    ),
    max_leaves=6,
)


def parsed(line: str) -> object:
    return thaw(freeze(OverridesParser.create().parse_override(line).value()))


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_strings_reach_the_parser_as_written(text: str):
    assert parsed(f"a.b={literal(text)}") == text


@given(values)
def test_any_value_reaches_the_parser_with_value_and_type(value: object):
    back = parsed(f"a.b={literal(freeze(value))}")
    assert back == value
    assert type(back) is type(value)


def test_a_later_mention_of_a_key_wins_with_and_without_plus():
    merged = Overrides.of({"+a.b": 1, "c": 2}).merged({"a.b": 3})
    assert merged.items == (("a.b", 3), ("c", 2))


def test_order_of_mention_makes_no_difference():
    assert Overrides.of({"b": 1, "a": 2}) == Overrides.of({"a": 2, "b": 1})
    assert hash(Overrides.of({"b": 1, "a": 2})) == hash(Overrides.of({"a": 2, "b": 1}))


def test_difference_names_bare_keys():
    assert Overrides.of({"+a": 1, "b": 2}).difference(Overrides.of({"a": 1, "b": 3, "c": 4})) == ("b", "c")


def test_numbers_count_by_value_in_a_hash_and_booleans_do_not():
    assert content_hash({"a": 512}) == content_hash({"a": 512.0})
    assert content_hash({"a": 1}) != content_hash({"a": True})
    assert content_hash({"a": "1"}) != content_hash({"a": 1})
    assert content_hash({"a": math.inf}) != content_hash({"a": -math.inf})


def test_what_has_no_literal_is_refused():
    with pytest.raises(TypeError, match="must be a string"):
        freeze(object())


def test_mappings_are_hashable_and_come_back():
    frozen = freeze({"b": [1, {"c": None}], "a": True})
    assert isinstance(frozen, Struct)
    assert thaw(frozen) == {"a": True, "b": [1, {"c": None}]}
    hash(frozen)


@pytest.mark.parametrize(
    ("value", "found"),
    [("${x}", True), ("a ${oc.env:HOME} b", True), ("\\${x}", False), ("$x", False), ("{x}", False), (3, False)],
)
def test_a_text_in_which_hydra_would_put_something_else_is_told(value: object, found: bool) -> None:
    assert is_interpolation(value) is found
