"""The whole of preflight: silence on a sound configuration, order, verdict, and any input at all."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, PreflightFinding, Severity, UnknownKey, preflight, verdict

from .sound import SOUND, codes, found, only

VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 3, 7, 2**31, 10**15]),
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(),
    st.text(max_size=8),
    st.just("???"),
    st.lists(st.text(max_size=4), max_size=3),
    st.just({}),
)


def test_nothing_is_said_about_a_sound_configuration() -> None:
    assert found({}) == []


def test_nothing_is_said_about_an_empty_configuration() -> None:
    assert preflight({}) == ()


def test_findings_come_worst_first() -> None:
    severities = [finding.severity.rank for finding in found({keys.ACTOR_LR: 1e-3, keys.MINI_BATCH: 96, keys.LAM: 2.0})]
    assert severities == sorted(severities)
    assert len(set(severities)) > 1


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([], Severity.OK),
        ([Severity.INFO], Severity.OK),
        ([Severity.INFO, Severity.WARN], Severity.WARN),
        ([Severity.WARN, Severity.ERROR], Severity.ERROR),
    ],
)
def test_the_verdict_is_the_worst_that_asks_for_something(severities: list[Severity], expected: Severity) -> None:
    assert verdict(PreflightFinding("X", severity, "w", "y") for severity in severities) is expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_an_error_wherever_it_stands(value: float) -> None:
    assert only("VALUE_NOT_FINITE", {"anything.at.all": value}).severity is Severity.ERROR


def test_an_unknown_key_is_an_error_with_its_suggestions() -> None:
    unknown = UnknownKey("algorithm.kl_ctrl.kl_coeff", ("algorithm.kl_ctrl.kl_coef",))
    finding = only("UNKNOWN_KEY", {}, Facts(unknown_keys=(unknown,)))
    assert finding.severity is Severity.ERROR
    assert finding.nearest == ("algorithm.kl_ctrl.kl_coef",)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(SOUND)), VALUES, max_size=6))
def test_any_values_at_all_get_findings_and_never_an_exception(changes: dict[str, object]) -> None:
    facts = Facts(
        given=frozenset(changes), gpu_gib=80.0, gpu_count=8, logical_cpus=64, dataset_rows=7473, trial_steps=500
    )
    for finding in found(changes, facts):
        assert finding.code and finding.what and finding.why
        json.dumps(finding.to_json(), default=str)


@settings(deadline=None)
@given(
    train=st.integers(1, 600),
    mini=st.integers(1, 300),
    micro=st.integers(1, 40),
    rollout_n=st.integers(1, 8),
    gpus=st.sampled_from([1, 2, 4, 8]),
)
def test_batches_that_verl_would_accept_pass_and_all_others_are_named(
    train: int, mini: int, micro: int, rollout_n: int, gpus: int
) -> None:
    named = codes(
        {
            keys.TRAIN_BATCH: train,
            keys.MINI_BATCH: mini,
            keys.CRITIC_MINI_BATCH: mini,
            keys.ACTOR_MICRO_BATCH: micro,
            keys.CRITIC_MICRO_BATCH: 1,
            keys.LOG_PROB_MICRO_BATCH: 1,
            keys.ROLLOUT_N: rollout_n,
            keys.GPUS_PER_NODE: gpus,
        }
    )
    rows = mini * rollout_n
    accepted = train % mini == 0 and rows % gpus == 0 and rows // gpus % micro == 0 and train * rollout_n % gpus == 0
    batch_codes = {code for code in named if code.startswith(("TRAIN_", "MINI_", "MICRO_"))}
    assert (not batch_codes) == accepted


def test_an_interpolation_that_nothing_resolves_is_an_error_where_it_was_given() -> None:
    broken = {keys.REWARD_PATH: "${no.such.thing}"}
    given = Facts(given=frozenset(broken))
    assert only("INTERPOLATION_UNRESOLVED", broken, given).keys == (keys.REWARD_PATH,)
    assert "INTERPOLATION_UNRESOLVED" not in codes(broken, Facts(given=frozenset()))
    assert "INTERPOLATION_UNRESOLVED" not in codes({keys.REWARD_PATH: "a.py"}, given)
