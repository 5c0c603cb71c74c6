from __future__ import annotations

import numpy as np
import pytest

from sweep.core.curve import Curve
from sweep.stats.early import FALSE_STOP_RATE, MIN_DEGREES, certainly_worse
from sweep.stats.estimate import Spread
from tests.stats.curves import made_curve

STEPS = 60
KNOWN = Spread(0.0025, 10)


def part(curve: Curve, steps: int) -> Curve:
    return Curve(steps=curve.steps[:steps], score=curve.score[:steps], step_seconds=curve.step_seconds[:steps])


def asked(candidate: Curve, *, spread: Spread | None = KNOWN) -> str:
    bases = [made_curve(s) for s in range(3)]
    return certainly_worse(candidate, bases, budget_steps=STEPS, warmup_steps=2, pooled_variance=spread)


def test_a_clearly_losing_trial_is_stopped_at_a_checkpoint_and_told_why() -> None:
    reason = asked(part(made_curve(9, seconds=3.0), 30))
    assert "after 30 of 60 steps" in reason


@pytest.mark.parametrize("steps", [1, 14, 29, 31, 59, 60])
def test_between_checkpoints_nothing_is_stopped(steps: int) -> None:
    assert asked(part(made_curve(9, seconds=9.0), steps)) == ""


def test_without_a_measured_spread_nothing_is_certain() -> None:
    losing = part(made_curve(9, seconds=9.0), 30)
    assert asked(losing, spread=None) == ""
    assert asked(losing, spread=Spread(0.0025, MIN_DEGREES - 1)) == ""


def test_a_baseline_that_has_not_gained_yet_stops_nothing() -> None:
    flat = [made_curve(s, gain=-0.1) for s in range(2)]
    losing = part(made_curve(9, seconds=9.0), 30)
    assert certainly_worse(losing, flat, budget_steps=STEPS, warmup_steps=2, pooled_variance=Spread(0.0025, 9)) == ""


def test_a_loss_within_the_margin_never_stops_a_trial() -> None:
    bases = [made_curve(s, noise=1e-6) for s in range(3)]
    slightly = part(made_curve(9, gain=0.4 * 0.97, noise=1e-6), 30)
    tiny = Spread(1e-10, 50)
    assert certainly_worse(slightly, bases, budget_steps=STEPS, warmup_steps=2, pooled_variance=tiny) == ""


def test_trials_of_equal_arms_are_hardly_ever_stopped() -> None:
    rng = np.random.default_rng(0)
    stopped = 0
    for i in range(200):
        luck = np.exp(0.1 * rng.normal(size=4))
        bases = [made_curve(1000 + 4 * i + s, gain=0.4 * luck[s]) for s in range(3)]
        own = made_curve(1003 + 4 * i, gain=0.4 * luck[3])
        stopped += any(
            certainly_worse(part(own, at), bases, budget_steps=STEPS, warmup_steps=2, pooled_variance=Spread(0.01, 20))
            for at in (30, 45)
        )
    assert stopped / 200 <= FALSE_STOP_RATE + 0.015


def test_a_slow_starter_that_is_catching_up_is_left_alone_and_one_that_stays_flat_is_not() -> None:
    steps = np.arange(1, STEPS + 1)
    rise = 1 / (1 + np.exp(-(steps - 30) / 4))
    late = Curve(tuple(steps.tolist()), score=tuple((0.1 + 0.5 * rise).tolist()), step_seconds=(1.0,) * STEPS)
    flat = Curve(tuple(steps.tolist()), score=tuple((0.1 + 0.02 * rise).tolist()), step_seconds=(1.0,) * STEPS)
    assert asked(part(late, 30)) == ""
    assert asked(part(flat, 30)) != ""
