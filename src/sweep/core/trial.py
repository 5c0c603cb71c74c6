"""`Trial`: one verl run as a value. What it would do decides its id; where its files go does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from sweep.core.overrides import Overrides, content_hash


class Measure(Enum):
    """What a trial does: it trains, or it only generates, as the training's rollout would."""

    TRAINING = "training"
    ROLLOUT = "rollout"


@dataclass(frozen=True)
class Trial:
    """A complete run: every override that reaches verl, the seed of all its generators, its length.

    `steps` is the number of training steps after which the trial is stopped; the learning-rate schedule may be
    longer (`sweep.schedule_steps` among the overrides). A trial that only generates has rounds for steps.
    """

    overrides: Overrides
    seed: int
    steps: int
    measure: Measure = Measure.TRAINING

    @cached_property
    def id(self) -> str:
        """12 hex digits that change whenever the run would, and only then."""
        content = {key: value for key, value in Overrides.to_json(self.overrides).items()}
        bare_content = {key.lstrip("+"): value for key, value in content.items()}
        return content_hash({"overrides": bare_content, "seed": self.seed, "steps": self.steps, **self._kind()})

    def to_json(self) -> dict[str, object]:
        """The trial as plain JSON types."""
        return {"overrides": self.overrides.to_json(), "seed": self.seed, "steps": self.steps, **self._kind()}

    def _kind(self) -> dict[str, str]:
        """Said only where it is not training, so that trials that train keep the ids that they always had."""
        return {} if self.measure is Measure.TRAINING else {"measure": self.measure.value}

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> Trial:
        """The trial that `to_json` described."""
        overrides, seed, steps = content["overrides"], content["seed"], content["steps"]
        assert isinstance(overrides, Mapping) and isinstance(seed, int) and isinstance(steps, int)
        return cls(Overrides.of(overrides), seed, steps, Measure(content.get("measure", Measure.TRAINING.value)))
