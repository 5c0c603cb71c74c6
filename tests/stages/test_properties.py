"""Every rule over generated histories: it ends, order does not matter, a prefix agrees with the whole, nor do units."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.config import compose, to_plan
from sweep.core.decision import Ask, Freeze, Halt, Launch, Wait
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import ConfirmRule, Stage
from sweep.core.trial import Trial
from sweep.stages import decide
from tests.stages.histories import died, line, nan_run

SETTINGS = ("model=tiny", "budget.seeds=2", "confirm.seeds=2")
PLANS = {
    "shipped": to_plan(compose(SETTINGS)),
    "earlier": to_plan(
        compose([*SETTINGS, "stages.minibatch.rule=eta", "stages.kl.rule=search", "stages.lr_lambda.rule=ladder"])
    ),
    "article": to_plan(compose([*SETTINGS, "stages.minibatch.rule=article"])),
    "proven": to_plan(compose([*SETTINGS, "stages.minibatch.bracket.prove=true"])),
}
CASES = [
    *(("shipped", s) for s in PLANS["shipped"].stages),
    *(("earlier", s) for s in PLANS["earlier"].stages if s.name in ("minibatch", "kl", "lr_lambda")),
    ("article", PLANS["article"].stage("minibatch")),
    ("proven", PLANS["proven"].stage("minibatch")),
]
FOUND = Overrides.of({"algorithm.lam": 0.96})


def run(gain: float, seconds: float, rate: float) -> Finished:
    return line(gain, seconds, **{"sweep/rollout_tokens_per_s": rate, "actor/reward_kl_penalty": 0.1})


POOL = (
    *(run(gain, seconds, 100 * gain / seconds) for gain in (-0.5, 0.0, 0.2, 0.21, 0.4, 0.9) for seconds in (1.0, 1.1)),
    died(),
    Failed(FailureClass.ENV_FAULT, "no route to host"),
    nan_run(),
    Diverged(nan_run().curve, "eta can still reach 0.7 at most", given_up=True),
)
"""Few different endings, so that the same curves are fitted once for all histories."""


def progress(stage: Stage, records: tuple[Record, ...]) -> Progress:
    plan = PLANS["shipped"]
    found = FOUND if isinstance(stage.rule, ConfirmRule) else Overrides()
    return Progress(plan.base, records, plan.seeds_of(stage), found=found)


def played(stage: Stage, ending) -> tuple[object, tuple[Record, ...]]:
    """The rule walked to its end; `ending(number of the trial, its settings)`; a sampler is a fixed row of values."""
    records: tuple[Record, ...] = ()
    for _ in range(300):
        decision = decide(stage, progress(stage, records))
        match decision:
            case Launch(proposals):
                for proposal in proposals:
                    records += (record(stage, proposal, ending(len(records), proposal)),)
            case Ask():
                asked = Overrides.of({stage.knobs[0].key: 0.0006 + 0.0001 * len(records)})
                proposal = Proposal(stage.fixed.merged(asked), progress(stage, ()).seeds[0], asked)
                records += (record(stage, proposal, ending(len(records), proposal)),)
            case Freeze() | Halt():
                return decision, records
            case Wait():
                raise AssertionError("nothing is running, yet the rule waits")
    raise AssertionError("no end")


def record(stage: Stage, proposal: Proposal, outcome) -> Record:
    base = progress(stage, ()).base
    trial = Trial(base.merged(proposal.settings), proposal.seed, stage.budget.steps)
    return Record(trial, proposal.settings, proposal.requested, proposal.note, outcome)


@pytest.mark.parametrize(("name", "stage"), CASES, ids=[f"{n} {s.name}" for n, s in CASES])
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_it_ends_whatever_its_trials_say_and_in_whatever_order_they_ended(name, stage, data):
    decision, records = played(stage, lambda number, proposal: data.draw(st.sampled_from(POOL)))
    assert isinstance(decision, Freeze | Halt)
    lost = min(sum(r.lost for r in records), stage.budget.most_trials)
    assert len(records) <= stage.budget.most_trials + lost + 2 * stage.budget.seeds
    mixed = data.draw(st.permutations(records))
    if not any(r.note == "" for r in records):  # what a sampler proposed is known by its place
        assert repr(decide(stage, progress(stage, tuple(mixed)))) == repr(decision)
    for length in range(len(records)):
        before = decide(stage, progress(stage, records[:length]))
        assert not isinstance(before, Freeze | Halt) or repr(before) == repr(decision)
        if isinstance(before, Launch):
            later = {(r.settings, r.trial.seed) for r in records[length:]}
            assert (before.proposals[0].settings, before.proposals[0].seed) in later


@pytest.mark.parametrize(("name", "stage"), CASES, ids=[f"{n} {s.name}" for n, s in CASES])
@settings(max_examples=2, deadline=None)
@given(
    gains=st.lists(st.sampled_from([0.2, 0.25, 0.3, 0.4, 0.55]), min_size=40, max_size=40),
    reward=st.sampled_from([0.01, 40.0]),
    seconds=st.sampled_from([0.01, 40.0]),
)
def test_units_of_reward_and_time_change_no_winner(name, stage, gains, reward, seconds):
    def plain(number, proposal):
        return run(gains[number % len(gains)], 2.0, 100 * gains[number % len(gains)])

    def scaled(number, proposal):
        whole = plain(number, proposal)
        curve = replace(
            whole.curve,
            score=tuple(reward * v for v in whole.curve.score),
            step_seconds=tuple(seconds * v for v in whole.curve.step_seconds),
            rollout_tokens_per_s=tuple(v / seconds for v in whole.curve.rollout_tokens_per_s),
        )
        return replace(whole, curve=curve)

    one, other = played(stage, plain)[0], played(stage, scaled)[0]
    assert type(one) is type(other)
    if isinstance(one, Freeze):
        assert one.choice.settings == other.choice.settings
