"""The comparison itself: it agrees by meaning and it can fail."""

from __future__ import annotations

from typing import Any

import pytest

from .compare import close, disagreements, of_item, of_variant, unchecked
from .expansion import expand, metric_rows, noise
from .vocabulary import code, forbidden, is_code, moves_in

ANSWER: dict[str, Any] = {
    "verdict": "KL_EXPLOSION",
    "severity": "critical",
    "codes": ["KL_EXPLOSION", "REWARD_DROP"],
    "moves": [("raise", "algorithm.kl_ctrl.kl_coef"), ("lower", "actor_rollout_ref.actor.optim.lr")],
    "text": "the penalty is too weak or the actor too aggressive; calibrate it (step 2 of the method)",
    "computed": {"level": 9.31, "steps": 299.0},
}


@pytest.mark.parametrize(
    "expected",
    [
        {"verdict": "KL_EXPLOSION", "severity": "critical", "also": ["REWARD_DROP"]},
        {"verdict": "KL_OUT_OF_CONTROL"},
        {"direction": "increase kl_coef or lower lr"},
        {"direction": "lower the learning rate"},
        {"computed": {"level": 9.3, "steps": 300}},
        {"next": "method step 2 (KL calibration)"},
        {"hint": "penalty weak, actor aggressive"},
        {"must_not": ["lower kl_coef", "KL_TOO_LOW", "report healthy", "call it plateau"]},
        {"summary": "whatever"},
    ],
)
def test_answers_that_mean_the_same_agree(expected: dict[str, Any]) -> None:
    assert disagreements(expected, ANSWER) == []


@pytest.mark.parametrize(
    "expected",
    [
        {"verdict": "OK"},
        {"severity": "warn"},
        {"also": ["ENTROPY_COLLAPSE"]},
        {"direction": "lower kl_coef"},
        {"computed": {"level": 5.0}},
        {"computed": {"unknown": 5.0}},
        {"next": "method step 3"},
        {"hint": "set entropy_coeff to zero first"},
        {"must_not": ["raise kl_coef"]},
        {"must_not": ["REWARD_DROP for noise"]},
        {"trial_state": "FAIL"},
        {"first_bad_step": 59},
        {"something_new": True},
    ],
)
def test_answers_that_mean_something_else_disagree(expected: dict[str, Any]) -> None:
    assert len(disagreements(expected, ANSWER)) == 1


def test_a_forbidden_thing_that_nothing_checks_is_reported() -> None:
    assert unchecked({"must_not": ["sing", "lower kl_coef"]}) == ["sing"]


@pytest.mark.parametrize(
    ("phrase", "allowed", "refused"),
    [
        (
            "record it as an OOM of the trial's batch size",
            {"class": "ENV_FAULT", "codes": ["GPU_MEMORY_OCCUPIED"]},
            [
                {"class": "OOM_GPU"},
                {"codes": ["CUDA_OOM"]},
                {"moves": [("lower", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")]},
            ],
        ),
        (
            "advise only the version pin",
            {"ordered_fixes": ["pin the version", "set num_cpus"]},
            [{"ordered_fixes": ["pin the version", "downgrade it"]}, {"ordered_fixes": []}],
        ),
        (
            "downgrade vLLM as the first advice when another root line exists",
            {"ordered_fixes": ["repair the error above", "downgrade vLLM"]},
            [{"ordered_fixes": ["downgrade vLLM", "repair the error above"]}, {"ordered_fixes": ["pin vllm"]}],
        ),
        (
            "silently add '+', which would make a dead knob",
            {"verdict": "ERROR", "suggestions": {"a.bb": "a.b"}},
            [{"verdict": "ERROR", "suggestions": {"a.bb": "+a.bb"}}, {"verdict": "OK"}],
        ),
    ],
)
def test_forbidden_things_are_seen_in_answers_that_do_them(
    phrase: str, allowed: dict[str, Any], refused: list[dict[str, Any]]
) -> None:
    expected = {"must_not": [phrase]}
    assert not unchecked(expected)
    assert disagreements(expected, allowed) == []
    assert all(disagreements(expected, answer) for answer in refused)


def test_a_number_that_is_a_bound_is_kept_by_less() -> None:
    assert disagreements({"max_len": 64}, {"max_len": 12}) == disagreements({"max_len": 64}, {"max_len": 64}) == []
    assert disagreements({"max_len": 64}, {"max_len": 65})


def test_each_variant_is_held_to_its_own_part() -> None:
    expected = {
        "verdict_by_variant": {"a_short": "OK", "b_long": "REWARD_PLATEAU"},
        "severity": "warn",
        "computed": {"a_x": 1, "b_x": 2, "y": 3},
    }
    names = ["a_short", "b_long"]
    assert of_variant(expected, "b_long", names) == {
        "verdict": "REWARD_PLATEAU",
        "severity": "warn",
        "computed": {"x": 2, "y": 3},
    }
    assert of_variant(expected, "a_short", names)["computed"] == {"x": 1, "y": 3}


def test_items_that_are_fine_are_held_to_their_verdict_alone() -> None:
    expected = {"verdicts": ["ERROR", "OK"], "code": "X_Y", "limit": 43}
    assert of_item(expected, 0) == {"verdict": "ERROR", "code": "X_Y", "limit": 43}
    assert of_item(expected, 1) == {"verdict": "OK"}


@pytest.mark.parametrize(
    ("wanted", "got", "same"),
    [(0.717, 0.7166, True), (71, 71.4, True), (300, 299, True), (2.23, 2.4, False), (0, 0.6, False)],
)
def test_numbers_agree_to_two_percent_or_their_last_digit(wanted: float, got: float, same: bool) -> None:
    assert close(wanted, got) is same


def test_ways_and_settings_are_found_in_words() -> None:
    assert moves_in("increase kl_coef or lower lr") == {("raise", "kl_coef"), ("lower", "lr")}
    assert moves_in("recommend a higher learning rate") == {("raise", "lr")}
    assert moves_in("nothing about settings") == set()


def test_codes_are_told_from_prose() -> None:
    assert is_code("PCIE_BUSY (only if GPU util > 85 too)") and is_code("OK") and not is_code("raise KL now")
    assert code("PCIE_BUSY (only if)") == "COMMUNICATION_BOUND"
    assert forbidden("GRAD_EXPLOSION from critic/grad_norm")


def test_segments_are_straight_lines_with_noise_that_repeats() -> None:
    rows = expand([{"from": 1, "to": 3, "a": [0.0, 1.0]}, {"from": 4, "to": 4, "a": [5.0, 9.0], "noise": 0.5}])
    assert rows[:3] == [(1, {"a": 0.0}), (2, {"a": 0.5}), (3, {"a": 1.0})]
    assert rows[3] == (4, {"a": round(5.0 + 0.5 * noise(4, "a"), 6)})
    assert all(-1 <= noise(step, name) < 1.0000001 for step in range(500) for name in ("a", "reward"))


def test_numbers_that_json_does_not_have_are_spelled() -> None:
    ((_, metrics),) = metric_rows({"rows": [{"step": 1, "a": "nan", "b": "inf", "c": None}]})
    assert metrics["a"] != metrics["a"] and metrics["b"] == float("inf") and "c" not in metrics
