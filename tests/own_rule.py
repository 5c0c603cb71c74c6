"""A rule and an objective of a user's own, named by import path in a stage file."""

from __future__ import annotations

import math

from sweep.core.decision import Decision, Freeze, Launch, Wait
from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress, Proposal
from sweep.core.stage import Stage
from sweep.core.winner import Choice, Score
from sweep.stages import objective


def middle_of_the_range(stage: Stage, progress: Progress) -> Decision:
    """One run at the middle of the knob's range wins without a comparison."""
    knob = stage.knobs[0]
    settings = Overrides.of({knob.key: (knob.low + knob.high) / 2})
    records = progress.arm(settings)
    if not records:
        return Launch((Proposal(settings, progress.seeds[0], settings, "the middle"),))
    if records[0].finished is None:
        return Wait()
    score = objective.score(stage, records[0].finished)
    return Freeze(Choice(settings, settings, score, score, (records[0].trial.id,), "the middle, unseen"))


def last_score(stage: Stage, finished: Finished) -> Score:
    """The score of the last step."""
    return Score(finished.curve.score[-1])


def in_words(stage: Stage, finished: Finished) -> Score:
    """A score that is no number."""
    return Score("high")  # type: ignore[arg-type]


def unknown(stage: Stage, finished: Finished) -> Score:
    """A score that is not known of any trial."""
    return Score(math.nan)
