"""KL settings: dead coefficients, idle targets, the adaptive controller's sign, our band."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.core.kl_band import KlBandSettings
from sweep.health.preflight import Facts, Severity

from .sound import codes, only

ON = {keys.KL_IN_REWARD: True}
BAND = {**ON, keys.KL_TYPE: "band"}


def chosen(*names: str) -> Facts:
    return Facts(given=frozenset(names))


def test_a_coefficient_without_a_kl_term_is_an_error_only_if_someone_chose_it() -> None:
    assert only("KL_COEF_WITHOUT_KL", {}, chosen(keys.KL_COEF)).severity is Severity.ERROR
    assert "KL_COEF_WITHOUT_KL" not in codes({}, chosen())
    assert "KL_COEF_WITHOUT_KL" not in codes({}, None)
    assert "KL_COEF_WITHOUT_KL" not in codes(ON, chosen(keys.KL_COEF))


def test_a_swept_coefficient_without_a_kl_term_is_an_error() -> None:
    assert "KL_COEF_WITHOUT_KL" in codes({}, Facts(swept=frozenset({keys.KL_COEF})))


def test_the_loss_term_has_a_coefficient_of_its_own() -> None:
    finding = only("KL_COEF_WITHOUT_KL", {keys.KL_LOSS: True}, chosen(keys.KL_COEF))
    assert f"{keys.KL_LOSS_COEF}=0.001" in finding.nearest


@pytest.mark.parametrize(
    ("kind", "in_reward", "named"),
    [
        ("fixed", True, True),
        ("band", True, True),
        ("adaptive", True, False),
        ("adaptive", False, True),
    ],
)
def test_only_an_adaptive_controller_in_use_reads_the_target(kind: str, in_reward: bool, named: bool) -> None:
    changes = {keys.KL_TYPE: kind, keys.KL_IN_REWARD: in_reward, keys.KL_TARGET: 0.05}
    assert ("TARGET_KL_UNUSED" in codes(changes)) == named


def test_the_default_target_is_not_remarked_on_unless_it_was_given() -> None:
    assert "TARGET_KL_UNUSED" not in codes(ON)
    assert "TARGET_KL_UNUSED" in codes(ON, chosen(keys.KL_TARGET))


@pytest.mark.parametrize(("train", "named"), [(49_984, False), (50_000, True), (50_048, True)])
def test_the_adaptive_coefficient_flips_its_sign_at_five_horizons(train: int, named: bool) -> None:
    changes = {**ON, keys.KL_TYPE: "adaptive", keys.TRAIN_BATCH: train}
    assert ("ADAPTIVE_KL_SIGN_FLIP" in codes(changes)) == named


def test_samples_a_prompt_count_for_the_sign() -> None:
    changes = {**ON, keys.KL_TYPE: "adaptive", keys.TRAIN_BATCH: 6400, keys.ROLLOUT_N: 8}
    finding = only("ADAPTIVE_KL_SIGN_FLIP", changes)
    assert finding.computed == {"rows": 51_200, "limit": 50_000}
    horizon = int(finding.nearest[0].partition("=")[2])
    assert "ADAPTIVE_KL_SIGN_FLIP" not in codes({**changes, keys.KL_HORIZON: horizon})


@pytest.mark.parametrize("key", [keys.KL_HORIZON, keys.KL_TARGET])
def test_the_adaptive_controller_divides_by_horizon_and_target(key: str) -> None:
    assert "OUT_OF_RANGE" in codes({**ON, keys.KL_TYPE: "adaptive", key: 0})


def test_an_unknown_controller_is_named() -> None:
    assert "KL_TYPE_UNKNOWN" in codes({keys.KL_TYPE: "bang"})


def test_a_band_with_the_articles_numbers_is_fine() -> None:
    values: dict[str, object] = {
        keys.BAND_LOW: 0.04,
        keys.BAND_HIGH: 0.18,
        keys.BAND_RAISE: 1.2,
        keys.BAND_LOWER: 0.8,
        keys.BAND_INTERVAL: 100,
        keys.COEF_MIN: 0.0005,
        keys.COEF_MAX: 0.01,
    }
    assert codes({**BAND, **values}) == []
    assert codes(BAND) == []


@pytest.mark.parametrize(
    "broken",
    [
        {keys.BAND_LOW: 0.18},
        {keys.BAND_RAISE: 0.9},
        {keys.BAND_LOWER: 1.1},
        {keys.BAND_LOWER: 0.0},
        {keys.BAND_INTERVAL: 0},
        {keys.BAND_INTERVAL: 2.5},
        {keys.COEF_MIN: 0.02},
        {keys.COEF_MIN: -0.001},
        {keys.BAND_HIGH: "wide"},
        {keys.BAND_HIGH: True},
    ],
)
def test_a_band_that_contradicts_itself_is_an_error(broken: dict[str, object]) -> None:
    assert only("BAND_INVALID", {**BAND, **broken}).severity is Severity.ERROR


@pytest.mark.parametrize(
    "allowed",
    [
        {keys.BAND_RAISE: 1.0},
        {keys.BAND_LOWER: 1.0},
        {keys.BAND_INTERVAL: 1},
        {keys.COEF_MIN: 0.0},
        {keys.COEF_MIN: 0.001, keys.COEF_MAX: 0.001},
    ],
)
def test_what_the_controller_runs_with_is_no_error(allowed: dict[str, object]) -> None:
    assert codes({**BAND, **allowed}) == []
    KlBandSettings.of({key.rpartition(".")[2]: value for key, value in allowed.items()})


@pytest.mark.parametrize(("coefficient", "outside"), [(0.0005, False), (0.01, False), (0.00049, True), (0.011, True)])
def test_a_start_outside_the_controllers_bounds_is_a_warning(coefficient: float, outside: bool) -> None:
    assert ("BAND_START_OUTSIDE" in codes({**BAND, keys.KL_COEF: coefficient})) is outside
    in_loss = {keys.KL_TYPE: "band", keys.KL_LOSS: True, keys.KL_LOSS_COEF: coefficient}
    assert codes(in_loss) == (["BAND_START_OUTSIDE"] if outside else [])


@pytest.mark.parametrize(("steps", "named"), [(60, True), (100, True), (101, False), (None, False)])
def test_a_controller_that_first_moves_after_the_trial_is_a_warning(steps: int | None, named: bool) -> None:
    facts = Facts(trial_steps=steps)
    assert ("BAND_NEVER_READS" in codes(BAND, facts)) is named
    assert "BAND_NEVER_READS" not in codes({**BAND, keys.BAND_INTERVAL: 20}, facts)
    assert "BAND_NEVER_READS" not in codes(ON, facts)
    if named:
        assert steps is not None
        assert only("BAND_NEVER_READS", BAND, facts).nearest == (f"+{keys.BAND_INTERVAL}={steps // 3}",)


def test_a_band_needs_a_kl_term_of_either_kind_and_its_settings_need_the_band() -> None:
    assert only("BAND_WITHOUT_KL", {keys.KL_TYPE: "band"}).severity is Severity.ERROR
    assert codes({keys.KL_TYPE: "band", keys.KL_LOSS: True}) == []
    assert "BAND_WITHOUT_KL" not in codes(BAND)
    assert "BAND_UNUSED" in codes({**ON, keys.BAND_LOW: 0.04})


def test_two_kl_terms_at_once_are_a_warning() -> None:
    assert only("KL_TWICE", {**ON, keys.KL_LOSS: True}).severity is Severity.WARN


@pytest.mark.parametrize(
    ("coefficient", "code"),
    [
        (0.0005, None),
        (0.01, None),
        (0.00049, "KL_COEF_OUTSIDE_SAFE_RANGE"),
        (0.011, "KL_COEF_OUTSIDE_SAFE_RANGE"),
        (0.0, "OUT_OF_RANGE"),
        (-0.001, "OUT_OF_RANGE"),
    ],
)
def test_the_coefficient_has_a_safe_range(coefficient: float, code: str | None) -> None:
    assert codes({**ON, keys.KL_COEF: coefficient}) == ([code] if code else [])
