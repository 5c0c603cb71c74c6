"""Every threshold is read by its check: another value moves the finding; each has a source and a range."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, fields, replace

import pytest

from sweep.core import verl_keys as keys
from sweep.errors import ConfigError
from sweep.health.preflight import Facts, ModelFacts, limits
from sweep.health.preflight.limits import DEFAULT, PreflightLimits
from sweep.health.preflight.memory import GIB

from .sound import codes, only

UNKNOWN = Facts()
NOTHING: dict[str, object] = {}
PENALTY: dict[str, object] = {keys.KL_IN_REWARD: True}
LONG: dict[str, object] = {keys.RESPONSE_LENGTH: 40_000, keys.ROLLOUT_RESPONSE_LENGTH: 40_000}


@dataclass(frozen=True, slots=True)
class Moved:
    """A finding that is there with `value` as the limit of this name, and not with the method's; or the other way
    round."""

    name: str
    value: float
    code: str
    changes: dict[str, object]
    facts: Facts = UNKNOWN
    there: bool = True


EIGHT_BILLION = Facts(model=ModelFacts(parameters=8e9), gpu_gib=80.0)
MOVED = (
    Moved("gpu_memory_utilization", 0.4, "UTILIZATION_HIGH", NOTHING),
    Moved(
        "kv_cache_share",
        0.4,
        "KV_SHARE_SMALL",
        NOTHING,
        Facts(model=ModelFacts(parameters=0.7 * 40 * GIB / 2), gpu_gib=80.0),
    ),
    Moved("full_share", 0.3, "TRAINING_STATE_EXCEEDS_GPU", NOTHING, EIGHT_BILLION),
    Moved("full_share", 0.1, "LOGITS_EXCEED_GPU", NOTHING, Facts(model=ModelFacts(vocabulary=150_000), gpu_gib=80.0)),
    Moved("worker_gib", 8.0, "HOST_MEMORY_SHORT", NOTHING, Facts(host_memory_gib=64.0)),
    Moved(
        "filter_rows_ratio",
        2.0,
        "DATALOADER_MAY_BE_EMPTY",
        {keys.FILTER_PROMPTS: True},
        Facts(dataset_rows=400),
    ),
    Moved("kl_coef_low", 0.002, "KL_COEF_OUTSIDE_SAFE_RANGE", PENALTY),
    Moved("kl_coef_high", 0.0008, "KL_COEF_OUTSIDE_SAFE_RANGE", PENALTY),
    Moved("lr_low", 2e-6, "LR_OUTSIDE_SAFE_RANGE", NOTHING),
    Moved("lr_high", 8e-7, "LR_OUTSIDE_SAFE_RANGE", NOTHING),
    Moved("ulysses_size", 2, "ADVISE_ULYSSES", {**LONG, keys.ULYSSES: 4}),
    Moved("long_sequence_tokens", 500, "ADVISE_ULYSSES", NOTHING),
    Moved("long_sequence_tokens", 500, "ADVISE_ULYSSES", {keys.ULYSSES: 2}, there=False),
    Moved("large_model_parameters", 0.5e9, "ADVISE_FSDP", NOTHING, Facts(model=ModelFacts(parameters=1e9))),
    Moved("critic_tokens_ratio", 3.0, "ADVISE_CRITIC_TOKENS", NOTHING),
    Moved("log_prob_micro_batch", 15, "ADVISE_LOG_PROB_MICRO", NOTHING),
)


def test_every_limit_is_among_those_that_are_moved() -> None:
    assert {moved.name for moved in MOVED} == {field.name for field in fields(PreflightLimits)}


@pytest.mark.parametrize("moved", MOVED, ids=lambda moved: f"{moved.name} {moved.code}")
def test_another_limit_moves_its_finding(moved: Moved) -> None:
    other = replace(moved.facts, limits=replace(DEFAULT, **{moved.name: moved.value}))
    assert (moved.code in codes(moved.changes, moved.facts)) is not moved.there
    assert (moved.code in codes(moved.changes, other)) is moved.there


@pytest.mark.parametrize(
    ("name", "value", "code", "changes"),
    [
        ("gpu_memory_utilization", 0.4, "UTILIZATION_HIGH", NOTHING),
        ("kl_coef_low", 0.002, "KL_COEF_OUTSIDE_SAFE_RANGE", PENALTY),
        ("lr_high", 8e-7, "LR_OUTSIDE_SAFE_RANGE", NOTHING),
        ("critic_tokens_ratio", 2.7, "ADVISE_CRITIC_TOKENS", NOTHING),
        ("log_prob_micro_batch", 15, "ADVISE_LOG_PROB_MICRO", NOTHING),
        ("log_prob_micro_batch", 1, "ADVISE_LOG_PROB_MICRO", NOTHING),
    ],
)
def test_what_is_proposed_lies_within_the_limit(name: str, value: float, code: str, changes: dict[str, object]) -> None:
    facts = Facts(limits=replace(DEFAULT, **{name: value}))
    key, _, nearest = only(code, changes, facts).nearest[0].lstrip("+").partition("=")
    assert code not in codes({**changes, key: ast.literal_eval(nearest)}, facts)


@pytest.mark.parametrize("ends", [{"lr_low": 5e-6}, {"lr_high": 1e-7}, {"kl_coef_low": 0.02}])
def test_a_range_rises(ends: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"_low must be below \w+_high, got .* and .*; the method's are"):
        PreflightLimits(**ends)


def test_every_limit_names_its_source_and_has_a_range_that_holds_the_methods_value() -> None:
    body = ast.parse(inspect.getsource(PreflightLimits)).body[0]
    assert isinstance(body, ast.ClassDef)
    told = {
        statement.target.id: ast.literal_eval(following.value)
        for statement, following in zip(body.body, body.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
    }
    assert set(told) == {field.name for field in fields(PreflightLimits)}
    assert all("Source: " in text or "Ours" in text for text in told.values())
    for name, hint in limits.PreflightLimits.__annotations__.items():
        within = eval(hint, vars(limits)).__metadata__[0]
        assert within.holds(getattr(DEFAULT, name)), name
