"""How a `Record` lies in an Optuna trial's user attributes: `intent`, `ending`, `Stored.read`.

All values are JSON; nothing is pickled. A curve is cut into parts because MySQL keeps 64 KiB an attribute. The
attribute `outcome` is written last, so an outcome that can be read is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.outcome import Failed, Outcome
from sweep.core.outcome import from_json as outcome_from_json
from sweep.core.outcome import to_json as outcome_to_json
from sweep.core.overrides import Overrides
from sweep.core.progress import Record
from sweep.core.trial import Trial
from sweep.core.winner import Score, score_from_json, score_json

FORMAT = 1
"""Version of this layout, kept with every trial."""

PART_CHARACTERS = 50_000
"""Longest piece of a curve. Source: MySQL's TEXT holds 65,535 bytes; JSON quoting needs some of it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A trial as read back; `score` is None unless it was scored."""

    record: Record
    score: Score | None
    attempts: tuple[Failed | None, ...]

    @classmethod
    def read(cls, attributes: Mapping[str, Any]) -> Stored | None:
        """The trial that the attributes describe; None if they describe no intended trial of ours."""
        if "trial" not in attributes:
            return None
        content, score = attributes.get("outcome"), attributes.get("score")
        outcome = None if content is None else outcome_of(attributes)
        record = Record(
            trial=Trial.from_json(attributes["trial"]),
            settings=Overrides.of(attributes["settings"]),
            requested=Overrides.of(attributes["requested"]),
            note=attributes["note"],
            outcome=outcome,
        )
        return cls(
            record=record,
            score=None if score is None else score_from_json(score),
            attempts=last_attempt_ended(attempts_from_json(attributes.get("attempts", [None])), outcome),
        )


def intent(record: Record, token: str, attempts: Sequence[Failed | None]) -> dict[str, Any]:
    """The attributes of a trial that is about to start.

    `token` tells this very writing from any other; `attempts` includes the one that is about to start.
    """
    return {
        "format": FORMAT,
        "trial_id": record.trial.id,
        "settings": record.settings.to_json(),
        "requested": record.requested.to_json(),
        "note": record.note,
        "intent": token,
        "attempts": attempts_to_json(attempts),
        "trial": record.trial.to_json(),
    }


def ending(outcome: Outcome, score: Score | None) -> list[tuple[str, Any]]:
    """The attributes of an ended trial in the order in which they must be written."""
    content = outcome_to_json(outcome)
    curve = content.pop("curve", None)
    text = "" if curve is None else json.dumps(curve, separators=(",", ":"))
    parts = [text[i : i + PART_CHARACTERS] for i in range(0, len(text), PART_CHARACTERS)]
    written: list[tuple[str, Any]] = [(f"curve.{i}", part) for i, part in enumerate(parts)]
    if score is not None:
        written.append(("score", score_json(score)))
    return [*written, ("outcome", {**content, "curve_parts": len(parts)})]


def as_stored(outcome: Outcome) -> Outcome:
    """The outcome as it will be read back, so that rules see the same numbers before and after a restart."""
    return outcome_from_json(outcome_to_json(outcome))


def attempts_to_json(attempts: Sequence[Failed | None]) -> list[dict[str, Any] | None]:
    """One entry an attempt: how it failed, None if it did not."""
    return [None if failure is None else outcome_to_json(failure) for failure in attempts]


def attempts_from_json(content: Sequence[Mapping[str, Any] | None]) -> tuple[Failed | None, ...]:
    """The attempts that `attempts_to_json` described."""
    read = [None if entry is None else outcome_from_json(entry) for entry in content]
    return tuple(entry if isinstance(entry, Failed) else None for entry in read)


def outcome_of(attributes: Mapping[str, Any]) -> Outcome:
    """The outcome that `ending` described."""
    content = attributes["outcome"]
    parts = [attributes[f"curve.{i}"] for i in range(content["curve_parts"])]
    curve = {"curve": json.loads("".join(parts))} if parts else {}
    return outcome_from_json({**content, **curve})


def last_attempt_ended(attempts: tuple[Failed | None, ...], outcome: Outcome | None) -> tuple[Failed | None, ...]:
    """The attempts with the trial's own outcome as the end of the last one, if that is a failure."""
    return (*attempts[:-1], outcome) if isinstance(outcome, Failed) and attempts[-1] is None else attempts
