"""`Workload`: prompts and response lengths shaped like a training's, the same for every candidate that is compared.

Tokens are random and responses are forced to their length: what a model says does not change how fast it says it,
but how long it talks does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SMALLEST_VOCABULARY = 256
"""Tokens that every vocabulary has; taken where the model's is not known. Ours."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One training step's rollout: `prompts` prompts, each answered `samples` times (verl's `rollout.n`).

    Responses are spread evenly over `response_tokens` x (1 +- `spread`): in a training some end early, and the last
    ones run alone.
    """

    prompts: int
    prompt_tokens: int
    response_tokens: int
    samples: int = 1
    spread: float = 0.0

    def __post_init__(self) -> None:
        if min(self.prompts, self.prompt_tokens, self.response_tokens, self.samples) < 1:
            raise ValueError(f"prompts, samples and tokens must be at least 1, got {self}")
        if not 0 <= self.spread < 1:
            raise ValueError(f"spread must be at least 0 and under 1, got {self.spread}")

    @property
    def sequences(self) -> int:
        """Responses in all."""
        return self.prompts * self.samples

    def prompt_ids(self, seed: int, vocabulary: int | None = None) -> list[list[int]]:
        """Token ids, shape (sequences, prompt_tokens); another seed shares no prefix, the same seed repeats."""
        draw = random.Random(seed)
        size = vocabulary or SMALLEST_VOCABULARY
        found = [[draw.randrange(size) for _ in range(self.prompt_tokens)] for _ in range(self.prompts)]
        return [prompt for prompt in found for _ in range(self.samples)]

    def response_lengths(self, seed: int) -> list[int]:
        """Tokens that each sequence generates, shape (sequences,); their sum is the same for every seed."""
        count = self.sequences
        places = [(2 * i + 1) / count - 1 for i in range(count)]  # evenly in (-1, 1)
        lengths = [max(1, round(self.response_tokens * (1 + self.spread * place))) for place in places]
        random.Random(seed).shuffle(lengths)
        return lengths
