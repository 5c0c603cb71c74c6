"""The diagnosis as a whole: total, ordered, explained; what follows for the trial; the three readings."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.failure import Retry
from sweep.health.code import HEADLINES, Code
from sweep.health.consequence import Consequence, Fate, consequence
from sweep.health.diagnosis import EXPLAINS, diagnose
from sweep.health.evidence import RunFacts
from sweep.health.finding import Finding, Severity
from sweep.health.metric_names import ALIASES
from sweep.health.metric_table import MetricTable
from sweep.health.reading import ABOVE, BELOW, HEALTHY, NOT_FINITE, NOT_LOGGED

from .curves import KL, NORM, SCORE, codes, line, noisy, the, told

NAMES = sorted({alias.name for aliases in ALIASES.values() for alias in aliases} | {"val-core/x/acc/mean@1"})
ANY_FLOAT = st.one_of(st.floats(), st.floats(-1, 1), st.just(0.0), st.sampled_from([math.nan, math.inf, 1e308, -1e308]))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.dictionaries(st.sampled_from(NAMES), ANY_FLOAT, max_size=6)), max_size=60
    ),
    st.sampled_from([None, 5.0, 80.0]),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_table_has_a_diagnosis_that_is_plain_json(
    rows: list[tuple[int, dict[str, float]]], total: float | None
) -> None:
    found = diagnose(MetricTable.from_rows(rows), RunFacts(gpu_total_gib=total, host_total_gib=total))
    json.dumps(found.to_json(), allow_nan=False)
    severities = [f.severity.rank for f in found.findings]
    assert severities == sorted(severities, reverse=True)
    assert found.verdict == "OK" or found.leading in found.findings


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=600), st.sampled_from([SCORE, KL, NORM, "actor/entropy"]))
def test_long_series_of_any_shape_have_a_diagnosis(values: list[float], name: str) -> None:
    assert told({name: values}).verdict


def test_an_empty_run_has_nothing_to_say() -> None:
    found = diagnose(MetricTable.from_rows([]))
    assert (found.verdict, found.severity, found.findings, found.first_step) == ("OK", Severity.INFO, (), None)


def test_the_gravest_finding_leads_and_causes_lead_consequences() -> None:
    collapsed = {
        SCORE: line(0.25, 0.31, 400) + [0.1] * 50,
        "actor/entropy": line(0.6, 0.05, 400) + [0.001] * 50,
        "response_length/clip_ratio": [0.02] * 400 + [0.99] * 50,
        "timing_s/step": [25.0] * 400 + [115.0] * 50,
    }
    found = told(collapsed)
    assert found.verdict == "ENTROPY_COLLAPSE"
    assert codes(found) >= {Code.REWARD_DROP, Code.LENGTH_SATURATED, Code.STEP_TIME_JUMP}


def test_a_remark_makes_no_verdict_unless_a_metric_of_the_screen_is_missing() -> None:
    assert told({SCORE: line(0.2, 0.6, 100), NORM: [2.0] * 100}).verdict == "OK"
    assert told({SCORE: line(0.2, 0.6, 100), "actor/ppo_kl": [0.0] * 100}).verdict == "KL_NOT_MEASURED"
    assert {Code.KL_NOT_MEASURED} == HEADLINES


def test_what_another_finding_explains_is_set_aside_and_listed() -> None:
    flat = {SCORE: noisy([0.5] * 220, 0.001), "actor/lr": [0.0] * 220}
    found = told(flat)
    assert found.verdict == "LR_ZERO"
    assert {(f.code, cause) for f, cause in found.explained} == {(Code.REWARD_PLATEAU, Code.LR_ZERO)}


def test_no_code_explains_itself() -> None:
    assert all(cause not in effects for cause, effects in EXPLAINS.items())


def test_precedence_is_the_order_of_the_codes() -> None:
    assert [code.precedence for code in Code] == list(range(len(Code)))


def _finding(code: Code, severity: Severity) -> Finding:
    return Finding(code, severity, "m", 1, 1, "")


@pytest.mark.parametrize(
    ("code", "severity", "fate"),
    [
        (Code.NON_FINITE, Severity.CRITICAL, Consequence(Fate.FAIL, Retry.NEW_CONFIG)),
        (Code.NON_FINITE, Severity.WARN, Consequence(Fate.KEEP, Retry.NO)),
        (Code.ENTROPY_COLLAPSE, Severity.CRITICAL, Consequence(Fate.PRUNE, Retry.NEW_CONFIG)),
        (Code.KL_EXPLOSION, Severity.ERROR, Consequence(Fate.KEEP, Retry.NO)),
        (Code.REWARD_PLATEAU, Severity.WARN, Consequence(Fate.KEEP, Retry.NO)),
    ],
)
def test_only_critical_findings_end_a_trial_and_only_nan_leaves_no_result(
    code: Code, severity: Severity, fate: Consequence
) -> None:
    assert consequence(_finding(code, severity)) == fate


@pytest.mark.parametrize(("first", "last", "shown"), [(None, None, ""), (5, 5, "5"), (5, None, "5"), (5, 9, "5-9")])
def test_steps_are_shown_as_a_stretch(first: int | None, last: int | None, shown: str) -> None:
    assert Finding(Code.SHORT_RUN, Severity.INFO, "m", first, last, "").steps == shown


def test_readings_say_where_each_metric_of_the_screen_stands() -> None:
    found = told({SCORE: line(0.2, 0.6, 50), KL: [0.02] * 50})
    assert [r.state for r in found.readings] == [HEALTHY, BELOW, NOT_LOGGED]
    broken = told({SCORE: [0.2, math.nan], KL: [0.17, 0.17], NORM: [20.0] * 2})
    assert [r.state for r in broken.readings] == [NOT_FINITE, ABOVE, "GRAD_EXPLOSION"]
    assert math.isnan(broken.readings[0].level) and math.isnan(broken.readings[0].smoothed)


def test_a_metric_that_is_not_finite_is_not_averaged() -> None:
    found = told({SCORE: [0.61, 0.63, 0.62, 0.6, 0.0, 0.0], NORM: [0.3] * 3 + [math.nan] * 3})
    assert the(found, Code.NON_FINITE).first_step == 4
    assert found.readings[2].state == NOT_FINITE and found.to_json()["screen"][2]["level"] is None
