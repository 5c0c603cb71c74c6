"""`disagreements`: what an answer gets wrong, compared by meaning: codes through one table, numbers with tolerance,
advice by settings and ways, prose by its words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .vocabulary import code, forbidden, is_code, moves_in, moves_of

FOR_PEOPLE = frozenset({"summary", "distance_note"})
"""Keys that explain a case and say nothing that an answer could get wrong by itself."""

BY_VARIANT = "_by_variant"
BOUNDS = frozenset({"max_len"})
"""Keys whose wanted number is a bound from above: anything at most as large keeps it."""

RELATIVE_TOLERANCE = 0.02
SHARED_WORDS = 0.3
"""Share of a phrase's words that agreeing prose has."""


def disagreements(expected: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """One line a key whose meaning the answer does not have."""
    found: list[str] = []
    for key, wanted in expected.items():
        if key in FOR_PEOPLE:
            continue
        if key == "must_not":
            found += [f"must not {phrase!r}: {wrong}" for phrase in wanted for wrong in _violations(phrase, answer)]
        elif key == "also":
            codes = set(map(code, answer.get("codes", ())))
            found += [f"also: {name} is missing among {sorted(codes)}" for name in wanted if code(name) not in codes]
        elif not _agrees(key, wanted, answer):
            found.append(f"{key}: wanted {wanted!r}, got {_shown(key, answer)}")
    return found


def unchecked(expected: Mapping[str, Any]) -> list[str]:
    """Forbidden things that no check stands for."""
    return [phrase for phrase in expected.get("must_not", ()) if not forbidden(phrase)]


def of_variant(expected: Mapping[str, Any], variant: str, variants: Sequence[str]) -> dict[str, Any]:
    """What is expected of one variant: its part of `*_by_variant` keys, and of numbers prefixed with its letter."""
    mine: dict[str, Any] = {k: v for k, v in expected.items() if not k.endswith(BY_VARIANT)}
    for key, values in expected.items():
        if key.endswith(BY_VARIANT):
            mine.pop(key.removesuffix(BY_VARIANT), None)
            mine |= {key.removesuffix(BY_VARIANT): values[variant]} if variant in values else {}
    letters = {name.split("_")[0] for name in variants}
    computed = mine.get("computed")
    if isinstance(computed, Mapping):
        parts = {k: k.partition("_") for k in computed}
        own = variant.split("_")[0]
        mine["computed"] = {
            (p[2] if p[0] in letters and p[2] else k): computed[k]
            for k, p in parts.items()
            if p[0] not in letters or p[0] == own
        }
    return mine


def of_item(expected: Mapping[str, Any], place: int) -> dict[str, Any]:
    """What is expected of one item of a list: its verdict and code; all else is about the items that are not OK."""
    verdict = expected["verdicts"][place] if "verdicts" in expected else None
    mine: dict[str, Any] = {"verdict": verdict} if verdict is not None else {}
    named = expected["codes"][place] if "codes" in expected else None
    mine |= {"code": named} if named is not None else {}
    if verdict != "OK":
        lists = ("verdicts", "codes")
        mine |= {k: v for k, v in expected.items() if k not in lists and k not in mine}
    return mine


def _violations(phrase: str, answer: Mapping[str, Any]) -> Iterator[str]:
    return (wrong for check in forbidden(phrase) if (wrong := check(answer)) is not None)


def _shown(key: str, answer: Mapping[str, Any]) -> str:
    value = _looked_up(key, answer)
    return repr(value if value is not None else answer.get("text", "nothing"))[:300]


def _looked_up(key: str, answer: Mapping[str, Any]) -> Any:
    if key in answer:
        return answer[key]
    if key == "code":
        return answer.get("verdict")
    return answer.get("computed", {}).get(key)


def _agrees(key: str, wanted: Any, answer: Mapping[str, Any]) -> bool:
    got = _looked_up(key, answer)
    if isinstance(wanted, bool) or wanted is None:
        return got is wanted
    if isinstance(wanted, int | float):
        if key in BOUNDS:
            return isinstance(got, int | float) and got <= wanted
        return isinstance(got, int | float) and close(float(wanted), float(got))
    if isinstance(wanted, str):
        return _text_agrees(key, wanted, got, answer)
    if isinstance(wanted, Mapping):
        parts = got if isinstance(got, Mapping) else answer.get("computed", {})
        inner = {"text": answer.get("text", ""), "computed": dict(parts)}
        return all(_agrees(str(k), v, inner) for k, v in wanted.items())
    return _list_agrees(wanted, got, answer)


def close(wanted: float, got: float) -> bool:
    """Whether two numbers are equal to within 2 %, or to half of the last digit that was wanted."""
    if math.isnan(wanted) or math.isnan(got):
        return math.isnan(wanted) and math.isnan(got)
    digits = len(repr(wanted).partition(".")[2]) if "e" not in repr(wanted) else 12
    return math.isclose(wanted, got, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.5 * 10**-digits)


def _text_agrees(key: str, wanted: str, got: Any, answer: Mapping[str, Any]) -> bool:
    if is_code(wanted):
        codes = [code(c) for c in answer.get("codes", ())]
        return got is not None and (code(str(got)) == code(wanted) or (key == "code" and code(wanted) in codes))
    if isinstance(got, float) and str(got) == wanted:
        return True
    if isinstance(got, str) and (got.casefold() == wanted.casefold() or re.fullmatch(r"[\w./-]+", wanted)):
        return got.casefold() == wanted.casefold()
    moves, mine = moves_in(wanted), moves_of(answer)
    if {m for m in moves if m[0] != "check"} and mine and not moves & mine:
        return False
    prose = f"{got if isinstance(got, str) else ''} {answer.get('text', '')}"
    return says(wanted, prose) or bool(moves & mine)


def says(wanted: str, text: str) -> bool:
    """Whether the text has the phrase's settings (one of them at least) and enough of its other words."""
    lowered = text.casefold()
    names = re.findall(r"[a-z]\w*(?:[._]\w+)+", wanted.casefold())
    if names and not any(name.rsplit(".", 1)[-1] in lowered for name in names):
        return False
    step = re.search(r"step \d", wanted.casefold())
    if step and step[0] not in lowered:
        return False
    words = {_stem(w) for w in re.findall(r"[a-z]{4,}", wanted.casefold())}
    have = {_stem(w) for w in re.findall(r"[a-z]{4,}", lowered)}
    return not words or len(words & have) >= max(1, SHARED_WORDS * len(words))


def _stem(word: str) -> str:
    return re.sub(r"(ing|ed|es|s|ion|e)$", "", word)


def _list_agrees(wanted: Sequence[Any], got: Any, answer: Mapping[str, Any]) -> bool:
    if all(isinstance(w, str) for w in wanted):
        if isinstance(got, list) and sorted(map(str, got)) == sorted(wanted):
            return True
        prose = [str(g) for g in got] if isinstance(got, list) else [str(answer.get("text", ""))]
        return all(any(says(w, p) for p in prose) for w in wanted)
    if not isinstance(got, Sequence) or len(got) != len(wanted):
        return False
    pairs = zip(wanted, got, strict=True)
    return all(_agrees("item", w, {"item": g, "computed": g if isinstance(g, Mapping) else {}}) for w, g in pairs)
