"""Times of different machines: a winner found by them says so; one found by rewards alone does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core.decision import Freeze
from sweep.core.outcome import Finished, Outcome
from sweep.core.overrides import Overrides
from sweep.core.progress import Proposal
from tests.stages.histories import line, play
from tests.stages.test_ladder import BASE, token_stage

SMALL, LARGE = "NVIDIA H200, 16 x Xeon", "NVIDIA H200, 32 x Xeon"


def frozen(objective: str, machines: dict[bool, str]) -> Freeze:
    """The ladder's decision when the baseline and all others ran on these machines."""

    def answer(proposal: Proposal, settings: Overrides) -> Outcome:
        run: Finished = line(0.3, 2.0, **{"sweep/rollout_tokens_per_s": 100.0})
        return replace(run, machine=machines[not proposal.settings])

    decision = play(replace(token_stage(), objective=objective), BASE, answer).decision
    assert isinstance(decision, Freeze)
    return decision


@pytest.mark.parametrize("objective", ["area_per_second", "rollout_throughput"])
def test_a_winner_by_times_of_two_machines_names_both(objective: str) -> None:
    reason = frozen(objective, {True: SMALL, False: LARGE}).choice.reason
    assert "different machines" in reason and f"on {SMALL}" in reason and f"on {LARGE}" in reason


@pytest.mark.parametrize(
    ("objective", "others"),
    [("area_per_second", SMALL), ("area_per_second", ""), ("reward_in_band", LARGE), ("height_and_smoothness", LARGE)],
)
def test_one_machine_an_unknown_one_or_rewards_alone_give_no_remark(objective: str, others: str) -> None:
    assert "machines" not in frozen(objective, {True: SMALL, False: others}).choice.reason
