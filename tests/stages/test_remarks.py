"""Remarks: the noise class, smoothness and gradient noise scale of made-up trials."""

from __future__ import annotations

import random

import pytest

from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.outcome import Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, Knob, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.stages.arms import Arm, Measured, summarize
from sweep.stages.remarks import remarks

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
