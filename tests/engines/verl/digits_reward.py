"""A dense reward for tests: the share of digits in a response. verl loads this file by its path."""

from __future__ import annotations

import os

SWITCH = "TEST_NO_REWARD"
"""Names a file; while it exists, nothing is worth anything."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **_: object
) -> dict[str, float]:
    """Any random model gets some and can get more."""
    if os.path.exists(os.environ.get(SWITCH, "")):
        return {"score": 0.0, "acc": 0.0}
    text = solution_str or ""
    share = sum(character.isdigit() for character in text) / max(len(text), 1)
    return {"score": share, "acc": float(str(ground_truth) in text)}
