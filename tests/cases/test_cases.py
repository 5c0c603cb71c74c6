"""Each case as one test, against the product's own calls."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from .adapters import answer_for
from .compare import disagreements, of_item, of_variant, unchecked
from .loading import Case, load_cases

PAYLOAD = {"metric_rows": "rows", "log_text": "text", "dmon_text": "text"}
"""Kind to the key that a variant of it stands for."""

LIST_SUFFIX = "_list"
"""A kind that ends so holds several inputs of the kind before it."""


def check(case: Case) -> list[str]:
    """What the product's answer to the case gets wrong."""
    given, expected, component = case.given, case.expected, case.component
    variants = given.get("variants")
    if variants:
        answer = answer_for(component, case.kind)
        wrong = []
        for name, content in variants.items():
            mine = of_variant(expected, name, list(variants))
            wrong += [f"{name}: {w}" for w in disagreements(mine, answer(_variant(given, content)))]
        return wrong
    if case.kind.endswith(LIST_SUFFIX):
        answer = answer_for(component, case.kind.removesuffix(LIST_SUFFIX))
        rest = {k: v for k, v in given.items() if k not in ("items", "kind")}
        items = [rest | dict(item) for item in given["items"]]
        return [
            f"item {place}: {w}"
            for place, item in enumerate(items)
            for w in disagreements(of_item(expected, place), answer(item))
        ]
    return disagreements(expected, answer_for(component, case.kind)(given))


def _variant(given: Mapping[str, Any], content: Any) -> dict[str, Any]:
    """The input with one variant in the place of all; a variant is its whole content or fields to add."""
    rest = {k: v for k, v in given.items() if k != "variants"}
    if isinstance(content, Mapping):
        return rest | dict(content)
    segments = isinstance(content, list) and bool(content) and "from" in content[0]
    return rest | {"segments" if segments else PAYLOAD.get(given["kind"], "rows"): content}


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.label)
def test_the_product_answers_the_case_in_its_meaning(case: Case) -> None:
    wrong = check(case)
    for phrase in unchecked(case.expected):
        warnings.warn(f"{case.label}: nothing checks {phrase!r}", stacklevel=1)
    assert not wrong, "\n".join(wrong)
