"""`Choice`: a rule's winner with its evidence; `Winner`: the choice as a stage freezes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sweep.core.overrides import NOTHING, Overrides


@dataclass(frozen=True, slots=True)
class Score:
    """A trial's or an arm's objective value, higher is better, with its standard error (NaN if unknown) and parts."""

    value: float
    standard_error: float = float("nan")
    parts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Ratio:
    """Winner over baseline with its 95 % interval; `assumed`: the spread between seeds was not measured enough."""

    value: float
    low: float
    high: float
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The winning settings of a stage, why they won, and what they were compared with; `ratio` where one exists."""

    settings: Overrides
    requested: Overrides
    score: Score
    baseline_score: Score
    trial_ids: tuple[str, ...]
    reason: str
    notes: tuple[str, ...] = ()
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """A frozen choice with its provenance.

    `stands_on` hashes what the result depends on besides its own trials; `base` are the settings that it was found
    on (campaign base with the upstream winners), kept so that a stale winner can say what changed, as `steps` are, of a
    trial (0: of a time when they were not kept). `search` are the terms of the search (`core.search_terms`; empty: as
    for the steps).
    """

    stage: str
    choice: Choice
    rule: str
    seeds: tuple[int, ...]
    stands_on: str
    base: Overrides = NOTHING
    upstream: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    steps: int = 0
    search: Overrides = NOTHING

    def to_json(self) -> dict[str, Any]:
        """The winner as plain JSON types, in the order a reader wants them."""
        c = self.choice
        return {
            "stage": self.stage,
            "overrides": c.settings.to_json(),
            "requested": c.requested.to_json(),
            "reason": c.reason,
            "notes": list(c.notes),
            "score": score_json(c.score),
            "baseline_score": score_json(c.baseline_score),
            "ratio": None if c.ratio is None else asdict(c.ratio),
            "trials": list(c.trial_ids),
            "seeds": list(self.seeds),
            "steps": self.steps,
            "rule": self.rule,
            "stands_on": self.stands_on,
            "base": self.base.to_json(),
            "upstream": dict(self.upstream),
            "versions": dict(self.versions),
            "search": self.search.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Winner:
        """The winner that `to_json` described."""
        choice = Choice(
            settings=Overrides.of(content["overrides"]),
            requested=Overrides.of(content["requested"]),
            score=score_from_json(content["score"]),
            baseline_score=score_from_json(content["baseline_score"]),
            trial_ids=tuple(content["trials"]),
            reason=content["reason"],
            notes=tuple(content["notes"]),
            ratio=Ratio(**content["ratio"]) if content.get("ratio") else None,
        )
        return cls(
            stage=content["stage"],
            choice=choice,
            rule=content["rule"],
            seeds=tuple(content["seeds"]),
            stands_on=content["stands_on"],
            base=Overrides.of(content.get("base", {})),
            upstream=tuple(content["upstream"].items()),
            versions=tuple(content["versions"].items()),
            steps=int(content.get("steps", 0)),
            search=Overrides.of(content.get("search", {})),
        )


def score_json(score: Score) -> dict[str, Any]:
    """The score as plain JSON types; what is no finite number is None."""
    return {
        "value": _number_or_none(score.value),
        "standard_error": _number_or_none(score.standard_error),
        "parts": {name: _number_or_none(value) for name, value in score.parts},
    }


def score_from_json(content: Mapping[str, Any]) -> Score:
    """The score that `score_json` described, with NaN for what was no finite number."""
    parts = tuple((name, _number_or_nan(value)) for name, value in content["parts"].items())
    return Score(_number_or_nan(content["value"]), _number_or_nan(content["standard_error"]), parts)


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number_or_nan(value: float | None) -> float:
    return math.nan if value is None else value
