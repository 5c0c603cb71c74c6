"""The catalogue: complete entries, gates that never hide a line, errors that name the entry."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.failure import FailureClass, Retry
from sweep.errors import ConfigError
from sweep.health.doctor_catalog import Kind, gates, load_catalog, parse_catalog

CATALOG = load_catalog()
ENTRY = {"code": "X", "title": "t", "class": "ENV_FAULT", "retry": "SAME", "source": "s", "any": ["ab(c"]}


@pytest.mark.parametrize("failure", CATALOG.failures, ids=lambda failure: failure.code)
def test_every_entry_says_what_to_do_and_where_it_is_known_from(failure) -> None:  # type: ignore[no-untyped-def]
    assert failure.title and failure.source
    assert failure.remedy.fix or failure.code == "NO_FAILURE_FOUND"
    assert bool(failure.signs) == (failure.kind is not Kind.RULE)
    assert bool(failure.examples) == (failure.kind is not Kind.RULE)


@pytest.mark.parametrize("failure", CATALOG.failures, ids=lambda failure: failure.code)
def test_a_retry_that_repeats_the_configuration_is_bounded(failure) -> None:  # type: ignore[no-untyped-def]
    repeats = failure.retry in (Retry.SAME, Retry.RESUME)
    assert (failure.max_retries > 0) == repeats


def test_each_phase_of_a_special_remedy_exists() -> None:
    phases = {phase for _, phase in CATALOG.phases.values()}
    named = {phase for failure in CATALOG.failures for phase in failure.by_phase}
    assert named <= phases


def test_every_class_of_failure_has_an_entry() -> None:
    assert {failure.failure_class for failure in CATALOG.failures} == set(FailureClass)


def test_every_example_holds_a_trigger_and_a_gate_of_its_own_entry() -> None:
    for failure in CATALOG.failures:
        for line in failure.examples:
            lowered = line.lower()
            assert any(word in lowered for word in CATALOG.triggers), line
            assert any(gate in lowered for sign in failure.signs for gate in sign.gates), line


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("No available memory", ("no available memory",)),
        (r"worker \S+ has died", (" has died",)),
        ("(?:CUDA|HIP) out of memory", (" out of memory",)),
        ("colou?r bar", ("r bar",)),
        (r"a\.b\(c\)", ("a.b(c)",)),
        ("ab|longer text", ("ab", "longer text")),
        ("[abc]xyz+", ("xyz",)),
        ("x{2}yes", ("yes",)),
        (r"(?P<n>\d+)", ("",)),
        ("[)(]tail", ("tail",)),
        (r"[^\]x]tail", ("tail",)),
        ("[]x]tail", ("tail",)),
        ("[^]x]tail", ("tail",)),
        (r"(?:[)\]]x)tail", ("tail",)),
    ],
)
def test_a_gate_is_the_longest_certain_text_of_each_alternative(expression: str, expected: tuple[str, ...]) -> None:
    assert gates(expression) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["abc", "de?", r"\d+", "(?:x|yz)", "[mn]", "q*", ".", "f+", "|", r"\(", "w{1,2}", " ", r"[^\]x]"]
        ),
        min_size=1,
        max_size=8,
    ),
    st.text(alphabet="abcdefgxyzmnqw123 (", max_size=40),
)
def test_a_line_without_a_gate_is_never_matched(parts: list[str], line: str) -> None:
    expression = "".join(parts)
    if re.search(expression, line, re.IGNORECASE):
        assert any(gate in line.lower() for gate in gates(expression))


@pytest.mark.parametrize(
    "change",
    [
        {"class": "NO_SUCH"},
        {"retry": "NO_SUCH"},
        {"kind": "no such"},
        {"any": ["un(closed"]},
        {"confidence": "no such"},
        {"source": None, "drop": "source"},
    ],
)
def test_a_bad_entry_is_refused_by_its_name(change: dict[str, object]) -> None:
    entry = {**ENTRY, "any": ["fine"], **change}
    if "drop" in change:
        entry.pop(str(change["drop"]))
    with pytest.raises(ConfigError, match="entry X is invalid"):
        parse_catalog({"failures": [entry]})


def test_an_entry_added_by_a_user_is_recognised_without_any_code() -> None:
    from sweep.health.doctor import diagnose_log

    catalog = parse_catalog(
        {
            "failures": [
                {
                    **ENTRY,
                    "code": "FLUX",
                    "any": [r"flux capacitor \((?P<amps>\d+) A\) drained"],
                    "fix": ["charge {amps}"],
                },
                *({**ENTRY, "code": code, "kind": "rule", "any": []} for code in ("ENDED_WITHOUT_ERROR", "EMPTY_LOG")),
            ]
        }
    )
    found = diagnose_log("flux capacitor (88 A) drained", catalog=catalog)
    assert (found.code, found.fix, found.computed) == ("FLUX", ("charge 88",), {"amps": 88})


def test_asking_for_an_unknown_code_is_an_error() -> None:
    with pytest.raises(ConfigError, match="NO_SUCH"):
        CATALOG.named("NO_SUCH")


def test_no_source_is_cut_by_a_mark_that_yaml_takes_for_a_comment() -> None:
    assert [f.code for f in load_catalog().failures if f.source.rstrip().endswith((",", ";"))] == []
