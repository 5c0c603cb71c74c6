"""Settings of our plug-ins: clipping that decays, guards, checkpoints."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.limits import DEFAULT
from sweep.health.plugin_settings import NAMES, PluginSettings
from sweep.health.preflight import Severity
from sweep.health.stopping import STOP_ON

from .sound import codes, found, only


def test_nothing_is_said_where_nothing_is_set() -> None:
    assert not [f for f in found({}) if any(key.startswith(keys.OWN_SECTION) for key in f.keys)]


def test_a_decaying_threshold_is_a_warning_that_says_when_it_is_at_its_floor() -> None:
    warned = only("CLIP_DECAYS", {keys.CLIP_DECAY: 0.999})
    assert warned.severity is Severity.WARN
    assert warned.computed["floor_reached_at_step"] == 2302  # 0.999^2302 is the first below 0.1
    assert only("CLIP_DECAYS", {keys.CLIP_DECAY: 0.999, keys.CLIP_FLOOR: 0.5}).computed["floor_reached_at_step"] == 693


@pytest.mark.parametrize(
    ("decay", "floor", "code"),
    [
        (0.999, 0.0, "CLIP_WITHOUT_FLOOR"),
        (0.999, None, "CLIP_WITHOUT_FLOOR"),
        (0.999, 0.01, "CLIP_DECAYS"),
        (1.0, 0.0, None),
        (1.001, 0.1, "OUT_OF_RANGE"),
        (0.0, 0.1, "OUT_OF_RANGE"),
    ],
)
def test_a_decay_needs_a_floor_and_stays_a_factor(decay: float, floor: float | None, code: str | None) -> None:
    about = [f.code for f in found({keys.CLIP_DECAY: decay, keys.CLIP_FLOOR: floor}) if keys.CLIP_DECAY in f.keys]
    assert about == ([code] if code else [])


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (keys.MIN_FREE_GIB, -0.1, True),
        (keys.MIN_FREE_GIB, 0.0, False),
        (keys.KEEP_LAST, 0, True),
        (keys.KEEP_LAST, 1, False),
        (keys.BEST_GAIN, -0.001, True),
        (keys.BEST_GAIN, 0.0, False),
    ],
)
def test_numbers_have_a_least_value(key: str, value: float, named: bool) -> None:
    assert ("OUT_OF_RANGE" in codes({key: value})) == named


@pytest.mark.parametrize("name", ["clip_decays", "keep_lasts", "limit.kl_explosion", "sweep"])
def test_a_setting_that_no_plug_in_reads_is_named(name: str) -> None:
    wrong = keys.OWN_SECTION + name
    finding = only("UNKNOWN_OPTION", {wrong: 0.999})
    assert wrong in finding.what and keys.CLIP_DECAY in finding.why


def test_every_setting_that_a_plug_in_reads_is_known() -> None:
    assert "UNKNOWN_OPTION" not in codes({keys.OWN_SECTION + name: None for name in NAMES})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.CLIP_DECAY, "slow"),
        (keys.KEEP_LAST, 1.5),
        (keys.SCHEDULE_STEPS, True),
        (keys.STOP_ON, "NON_FINITE"),
        (keys.LIMITS, 5),
        (f"{keys.LIMITS}.kl_explosion", "high"),
        (f"{keys.LIMITS}.kl_explosion", -0.1),
        (f"{keys.LIMITS}.grad_vanishing_steps", 0),
        (f"{keys.LIMITS}.grad_vanishing_steps", 0.5),
        (f"{keys.LIMITS}.creep_blocks", 1),
        (f"{keys.LIMITS}.kl_band", 0.1),
        (f"{keys.LIMITS}.kl_band", [0.1, "x"]),
    ],
)
def test_a_value_that_would_fail_inside_the_trainer_is_named(key: str, value: object) -> None:
    assert only("OUT_OF_RANGE", {key: value}).keys == (key,)
    name, _, limit = key.removeprefix(keys.OWN_SECTION).partition(".")
    if limit:
        with pytest.raises(ValueError, match=limit):
            PluginSettings.of({"sweep": {name: {limit: value}}})


@pytest.mark.parametrize(
    ("name", "value"),
    [("grad_vanishing_steps", 1), ("creep_blocks", 2), ("kl_band", [0.1, 0.2]), ("explained_variance", -0.5)],
)
def test_limits_that_can_work_are_let_through(name: str, value: object) -> None:
    assert codes({f"{keys.LIMITS}.{name}": value}) == []
    PluginSettings.of({"sweep": {"limits": {name: value}}})


@pytest.mark.parametrize("value", [[0.2, 0.1], [-0.1, 0.1], [0.1, 0.1]])
def test_a_band_rises(value: list[float]) -> None:
    assert codes({f"{keys.LIMITS}.kl_band": value}) == ["OUT_OF_RANGE"]
    PluginSettings.of({"sweep": {"limits": {"kl_negative": [-0.1, -0.2]}}})  # one number for each unit


def test_guards_and_limits_that_do_not_exist_are_named() -> None:
    assert "KL_HIGH" in only("UNKNOWN_OPTION", {keys.STOP_ON: ["KL_HIGH", "NON_FINITE"]}).what
    assert "UNKNOWN_OPTION" not in codes({keys.STOP_ON: list(STOP_ON)})
    wrong = f"{keys.LIMITS}.kl_explosions"
    assert wrong in only("UNKNOWN_OPTION", {wrong: 0.3}).what
    assert "UNKNOWN_OPTION" not in codes({f"{keys.LIMITS}.kl_explosion": DEFAULT.kl_explosion})
