"""The diagnosis in a winner's notes: of baseline and winner, by the trials' own thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core import verl_keys as keys
from sweep.core.curve import Curve
from sweep.core.outcome import Finished
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import BracketRule, Knob, Stage, StageBudget
from sweep.core.trial import Measure, Trial
from sweep.core.winner import Choice, Score
from sweep.health_notes import health_notes

BASE = Overrides.of({keys.ACTOR_LR: 1e-6})
FASTER = Overrides.of({keys.ACTOR_LR: 2e-6})
STAGE = Stage("lr", (Knob(keys.ACTOR_LR, 5e-7, 5e-6),), BracketRule(), "height_and_smoothness", StageBudget(4, 300))


def ran(settings: Overrides, kl_nats: float, base: Overrides = BASE) -> Record:
    """A trial whose reward rises, with that KL at its end."""
    rows = [
        (i, {"critic/score/mean": 0.2 + 0.001 * i, "actor/reward_kl_penalty": kl_nats * i / 300}) for i in range(1, 301)
    ]
    return Record(Trial(base.merged(settings), 1, 300), settings, settings, "", Finished(Curve.from_rows(rows)))


def chosen(settings: Overrides) -> Choice:
    return Choice(settings, settings, Score(1.0), Score(0.5), (), "why")


def test_baseline_and_winner_are_diagnosed() -> None:
    progress = Progress(BASE, (ran(NOTHING, 0.1), ran(FASTER, 0.4)), (1,))
    calm, wild = health_notes(STAGE, progress, chosen(FASTER))
    assert calm.startswith("diagnosis of the baseline, trial ") and calm.endswith("nothing wrong")
    assert wild.startswith("diagnosis of the winner, trial ") and "KL_EXPLOSION (error): KL at 0.3" in wild
    assert "penalty is too weak" in wild


@pytest.mark.parametrize("settings", [NOTHING, BASE])
def test_a_baseline_that_stays_is_diagnosed_once(settings: Overrides) -> None:
    assert len(health_notes(STAGE, Progress(BASE, (ran(NOTHING, 0.1),), (1,)), chosen(settings))) == 1


def test_the_thresholds_are_those_of_the_trials_guards() -> None:
    base = BASE.merged({f"+{keys.LIMITS}.kl_explosion": 0.5, f"+{keys.LIMITS}.kl_band": [0.05, 0.6]})
    progress = Progress(base, (ran(NOTHING, 0.4, base),), (1,))
    assert health_notes(STAGE, progress, chosen(NOTHING))[0].endswith("nothing wrong")


def test_trials_that_do_not_train_have_no_diagnosis() -> None:
    progress = Progress(BASE, (ran(NOTHING, 0.1),), (1,))
    assert health_notes(replace(STAGE, measure=Measure.ROLLOUT), progress, chosen(NOTHING)) == ()
