"""Token budgets and lengths."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity

from .sound import codes, only

DYNAMIC = {keys.ACTOR_DYNAMIC_BATCH: True, keys.ROLLOUT_LOG_PROB_DYNAMIC: True}


@pytest.mark.parametrize(("budget", "named"), [(8192, False), (10_000, True), (106_496, True)])
def test_a_budget_beside_the_usual_ones_is_told_which_are_worth_a_trial(budget: int, named: bool) -> None:
    facts = Facts(model=ModelFacts(hidden_size=4096), gpu_gib=80)
    assert ("ADVISE_TOKEN_BUDGET" in codes({keys.MAX_BATCHED_TOKENS: budget}, facts)) == named


def test_the_budgets_worth_a_trial_begin_at_the_sequences() -> None:
    facts = Facts(model=ModelFacts(hidden_size=4096), gpu_gib=80)
    advice = only("ADVISE_TOKEN_BUDGET", {keys.MAX_BATCHED_TOKENS: 5000, keys.MAX_SEQS: 5000}, facts)
    assert advice.nearest == (f"{keys.MAX_BATCHED_TOKENS}=8192", *advice.nearest[1:])
    assert "106496" in advice.why


@pytest.mark.parametrize(("budget", "named"), [(255, True), (256, False)])
def test_a_budget_below_the_sequences_is_refused_by_the_engine(budget: int, named: bool) -> None:
    assert ("TOKENS_LT_SEQS" in codes({keys.MAX_BATCHED_TOKENS: budget})) == named


@pytest.mark.parametrize(("budget", "named"), [(256 * 768, False), (256 * 768 + 1, True)])
def test_a_budget_that_no_batch_can_fill_is_remarked_on(budget: int, named: bool) -> None:
    assert ("BUDGET_UNREACHABLE" in codes({keys.MAX_BATCHED_TOKENS: budget})) == named


@pytest.mark.parametrize(("positions", "named"), [(767, True), (768, False)])
def test_prompt_and_response_fit_the_model(positions: int, named: bool) -> None:
    facts = Facts(model=ModelFacts(max_positions=positions))
    assert ("SEQUENCE_GT_MODEL_LEN" in codes({}, facts)) == named


def test_a_response_that_would_fit_is_proposed() -> None:
    finding = only("SEQUENCE_GT_MODEL_LEN", {keys.ROLLOUT_MODEL_LEN: 700})
    assert finding.nearest == (f"{keys.RESPONSE_LENGTH}=188",)


def test_the_engines_length_may_not_exceed_the_models() -> None:
    facts = Facts(model=ModelFacts(max_positions=4096))
    assert "MODEL_LEN_GT_POSITIONS" in codes({keys.ROLLOUT_MODEL_LEN: 4097}, facts)
    assert "MODEL_LEN_GT_POSITIONS" not in codes({keys.ROLLOUT_MODEL_LEN: 4096}, facts)


def test_without_chunked_prefill_verl_raises_a_small_budget_itself() -> None:
    facts = Facts(model=ModelFacts(max_positions=32768))
    assert "BUDGET_RAISED_BY_VERL" in codes({keys.ROLLOUT_CHUNKED_PREFILL: False}, facts)
    assert "BUDGET_RAISED_BY_VERL" not in codes({}, facts)


@pytest.mark.parametrize("key", [keys.ROLLOUT_RESPONSE_LENGTH, keys.ROLLOUT_PROMPT_LENGTH])
def test_lengths_of_rollout_and_data_agree(key: str) -> None:
    assert only("LENGTHS_DISAGREE", {key: 200}).severity is Severity.WARN


@pytest.mark.parametrize(
    ("share", "code"),
    [(0.0, "OUT_OF_RANGE"), (1.01, "OUT_OF_RANGE"), (1.0, "UTILIZATION_HIGH"), (0.71, "UTILIZATION_HIGH"), (0.7, None)],
)
def test_the_share_of_memory_has_a_range_and_a_risky_end(share: float, code: str | None) -> None:
    assert codes({keys.MEMORY_UTILIZATION: share}) == ([code] if code else [])


def test_offloading_makes_a_high_share_reasonable() -> None:
    assert "UTILIZATION_HIGH" not in codes({keys.MEMORY_UTILIZATION: 0.85, keys.ACTOR_PARAM_OFFLOAD: True})


def test_a_budget_above_the_clamp_is_a_warning_only_where_gpu_and_model_are_known() -> None:
    facts = Facts(gpu_gib=80, model=ModelFacts(hidden_size=4096))
    above = {keys.MAX_BATCHED_TOKENS: 106_497}
    assert only("BUDGET_ABOVE_CLAMP", above, facts).nearest == (f"{keys.MAX_BATCHED_TOKENS}=106496",)
    assert "BUDGET_ABOVE_CLAMP" not in codes({keys.MAX_BATCHED_TOKENS: 106_496}, facts)
    assert "BUDGET_ABOVE_CLAMP" not in codes(above)


@pytest.mark.parametrize(("cap", "ranks", "named"), [(384, 2, False), (383, 2, True), (768, 1, False), (767, 1, True)])
def test_the_longest_sequence_fits_under_a_token_cap_of_all_its_ranks(cap: int, ranks: int, named: bool) -> None:
    changes = {
        **DYNAMIC,
        keys.ACTOR_TOKENS: cap,
        keys.ROLLOUT_LOG_PROB_MAX_TOKENS: 16384,
        keys.ULYSSES: ranks,
    }
    assert ("TOKEN_CAP_LT_SEQ" in codes(changes)) == named


def test_fixed_batches_have_no_cap() -> None:
    assert "TOKEN_CAP_LT_SEQ" not in codes({keys.ACTOR_TOKENS: 10})


def test_the_critics_cap_holds_always_in_v1() -> None:
    long = {keys.RESPONSE_LENGTH: 40_000, keys.ROLLOUT_RESPONSE_LENGTH: 40_000}
    finding = only("TOKEN_CAP_LT_SEQ", long)
    assert finding.nearest == (f"+{keys.CRITIC_INFER_MAX_TOKENS}=40512",)
    assert "TOKEN_CAP_LT_SEQ" not in codes({**long, keys.USE_V1: False})
    assert "TOKEN_CAP_LT_SEQ" not in codes({**long, keys.CRITIC_INFER_MAX_TOKENS: 40_512})
