"""Remarks: the noise class, smoothness and gradient noise scale of made-up trials."""

from __future__ import annotations

import math
import random

import pytest

from sweep.config import compose, to_plan
from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.outcome import Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, Knob, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.stages.arms import Arm, Measured, summarize
from sweep.stages.remarks import remarks, unsteady
from tests.stages.histories import play

BASE = Overrides.of({keys.MINI_BATCH: 256, keys.TRAIN_BATCH: 1024})
PROGRESS = Progress(BASE, (), (1,))


def stage(*knobs: str) -> Stage:
    return Stage("a", tuple(Knob(k, 1, 2) for k in knobs), BracketRule(), "reward_per_second", StageBudget(4, 100))


def arm(at: Stage, noise: float, norm: float = 1.0, **settings: object) -> Measured:
    draw = random.Random(3)
    rows = [
        (
            i,
            {
                "critic/score/mean": 0.1 + 0.4 * i / 100 + noise * 0.4 * draw.gauss(0, 1),
                "actor/grad_norm": norm * (1 + 0.02 * draw.gauss(0, 1)),
                "timing_s/step": 2.0,
            },
        )
        for i in range(1, 101)
    ]
    laid = Overrides.of(settings)
    record = Record(Trial(BASE.merged(laid), 1, 100), laid, NOTHING, "", Finished(Curve.from_rows(rows)))
    return summarize(at, Arm(laid, laid), [record])


@pytest.mark.parametrize(
    ("noise", "says"),
    [(0.02, "a quiet task, for which S0 gives lam 0.99"), (0.3, "noisy task, for which S0 gives lam 0.95")],
)
def test_the_reward_noise_says_which_of_the_articles_cases_it_is(noise, says):
    at = stage(keys.LAM)
    (said,) = remarks(at, PROGRESS, arm(at, noise), arm(at, noise), [])
    assert says in said


def test_smoothness_is_said_of_baseline_and_winner_where_the_learning_rate_moved():
    at = stage(keys.ACTOR_LR)
    said = remarks(at, PROGRESS, arm(at, 0.02), arm(at, 0.2), [])
    assert said[0].startswith("smoothness of the baseline: roughness 2%")
    assert said[1].startswith("smoothness of the winner: roughness ")


@pytest.mark.parametrize(("swing", "said"), [(0.1, True), (0.0, False)])
def test_a_learning_rate_at_which_the_reward_swings_is_no_ground_for_lam(swing: float, said: bool):
    draw = random.Random(4)
    rows = [
        (i, {"critic/score/mean": 0.1 + 0.004 * i + swing * math.sin(i * math.tau / 8) + 0.01 * draw.gauss(0, 1)})
        for i in range(1, 101)
    ]
    run = Record(Trial(BASE, 1, 100), NOTHING, NOTHING, "", Finished(Curve.from_rows(rows)))
    notes = tuple(unsteady(summarize(stage(keys.ACTOR_LR), Arm(NOTHING, NOTHING), [run])))
    assert bool(notes) is said
    assert not notes or "swings every 8 steps" in notes[0]


@pytest.mark.parametrize("rule", ["bracket", "ladder"])
def test_the_swing_is_noted_of_the_rate_that_lam_was_walked_with(rule: str):
    base = to_plan(compose(["model=tiny", f"stages.lr_lambda.rule={rule}"]))
    walked = base.stage("lr_lambda")

    def answer(proposal, overrides):
        at_top = overrides.get(keys.LAM) == 0.97
        rows = [
            (
                i,
                {
                    "critic/score/mean": 0.1 + 0.004 * i + 0.05 * at_top * math.sin(i * math.tau / 8),
                    "timing_s/step": 1.0,
                },
            )
            for i in range(1, 41)
        ]
        return Finished(Curve.from_rows(rows))

    notes = play(walked, base.base, answer).choice.notes
    assert sum("was walked with" in note for note in notes) == 1


def test_the_gradient_noise_scale_comes_from_the_norms_at_two_mini_batches_or_is_said_to_be_unknown():
    at = stage(keys.MINI_BATCH)
    small, large = 64, 256  # |G| 1, noise scale 128: E|G_B|^2 = 1 + 128 / B
    low, high = arm(at, 0.02, (1 + 128 / small) ** 0.5, **{keys.MINI_BATCH: small}), arm(at, 0.02, 1.5**0.5)
    (said,) = remarks(at, PROGRESS, high, low, [low])
    assert float(said.split()[3]) == pytest.approx(128, rel=0.1)
    assert f"{small} and {large}" in said
    (unknown,) = remarks(
        at,
        PROGRESS,
        arm(at, 0.02, 1.0),
        arm(at, 0.02, 1.0, **{keys.MINI_BATCH: 64}),
        [arm(at, 0.02, 1.0, **{keys.MINI_BATCH: 64})],
    )
    assert "cannot tell" in unknown


def test_a_stage_of_other_knobs_has_nothing_to_remark():
    at = stage(keys.KL_COEF)
    assert remarks(at, PROGRESS, arm(at, 0.1), arm(at, 0.1), []) == ()
