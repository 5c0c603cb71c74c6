"""Rewards that verl's reward workers load by this file's path (`reward.custom_reward_function.path` and `.name`).

`compute_score` picks by `data_source` as verl's own default does; the others force one rule for any data.
Only the standard library is imported: verl loads this file outside the package.
Each returns `score`, which is trained on, and `acc`, 1.0 for the right answer and else 0.0, which validation reports.
"""

from __future__ import annotations

import re

COLUMNS_SOURCE = "sweep/arithmetic-columns"
ONLY_A_NUMBER_CREDIT = 0.1
RIGHT_AMONG_WORDS_CREDIT = 0.7
"""Ours: a right answer among words must beat a wrong one of the right form, and lose to a right one of that form."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **_: object
) -> dict[str, float]:
    """Digit-wise credit for column additions, exact for every other source."""
    rule = compute_columns if data_source == COLUMNS_SOURCE else compute_exact
    return rule(data_source, solution_str, ground_truth, extra_info)


def compute_exact(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **_: object
) -> dict[str, float]:
    """1.0 if the last whole number in the response is the answer, else 0.0; listing guesses gains nothing."""
    right = float(_last_number(solution_str) == str(ground_truth))
    return {"score": right, "acc": right}


def compute_shaped(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **_: object
) -> dict[str, float]:
    """1.0 for the bare answer, 0.7 for it among words, 0.1 for another bare number, else 0.0."""
    bare = re.fullmatch(r"\s*-?\d+\s*\.?\s*", solution_str) is not None
    right = _last_number(solution_str) == str(ground_truth)
    if right:
        return {"score": 1.0 if bare else RIGHT_AMONG_WORDS_CREDIT, "acc": 1.0}
    return {"score": ONLY_A_NUMBER_CREDIT if bare else 0.0, "acc": 0.0}


def compute_columns(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **_: object
) -> dict[str, float]:
    """Share of digits that are right and in their place; a missing or extra digit counts as a wrong one.

    Dense on purpose: one more right digit always scores higher, so that a model of a hundred thousand parameters
    learns within tens of steps.
    """
    given, wanted = solution_str.strip(), str(ground_truth)
    width = max(len(given), len(wanted))
    right = sum(mine == wanted_digit for mine, wanted_digit in zip(given, wanted, strict=False))
    return {"score": right / width if width else 0.0, "acc": float(given == wanted)}


def _last_number(text: str) -> str | None:
    numbers = re.findall(r"-?\d+", text.replace(",", ""))
    return numbers[-1] if numbers else None
