"""The recipe of the tiny model as a value: whatever is in it decides the model, and its hash names the folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Lesson:
    """So many steps towards answers in which this share of the probability is spread evenly over all digits."""

    steps: int
    doubt: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape and schooling of the model. Ours, tuned on the CPU: see docs/tiny-task.md."""

    version: int = 1
    seed: int = 0
    hidden_size: int = 96
    layers: int = 2
    heads: int = 3  # of 32 values each, the smallest head that vLLM's CPU attention takes; two heads learn too slowly
    vocabulary: int = 320  # a multiple of 64 over the tokenizer's 304
    positions: int = 1024
    columns: int = 16
    lessons: tuple[Lesson, ...] = (Lesson(300, 0.3), Lesson(60, 0.4))  # certainty teaches faster, doubt follows
    batch: int = 16
    lr: float = 5e-3
    warmup_steps: int = 50

    def to_json(self) -> dict[str, object]:
        """The recipe as plain JSON types."""
        return {**asdict(self), "lessons": [asdict(lesson) for lesson in self.lessons]}


RECIPE = Recipe()
