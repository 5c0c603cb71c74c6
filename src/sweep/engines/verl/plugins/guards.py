"""Reasons to stop a running trial: a list of rules, each asked after every step. Pure.

A rule sees the metrics of all steps so far, the last one last, and answers with a reason or the empty string.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Rows = Sequence[Mapping[str, float]]
StopRule = Callable[[Rows], str]

HEADLINES = (
    "critic/score/mean",
    "critic/rewards/mean",
    "critic/vf_loss",
    "critic/grad_norm",
    "actor/pg_loss",
    "actor/grad_norm",
    "actor/entropy",
    "actor/reward_kl_penalty",
    "actor/kl_loss",
)
"""The metrics that every decision about a trial reads; none of them recovers once it is not a number."""


def non_finite(rows: Rows) -> str:
    """Names the headline metrics of the last step that are NaN or infinite."""
    if not rows:
        return ""
    broken = [name for name in HEADLINES if name in rows[-1] and not math.isfinite(rows[-1][name])]
    return f"non-finite {', '.join(broken)} at step {len(rows)}" if broken else ""


STOP_RULES: list[StopRule] = [non_finite]
"""The rules of every trial; further ones are appended here."""


def stop_reason(rows: Rows, rules: Sequence[StopRule]) -> str:
    """The first rule's reason, or the empty string."""
    return next((reason for rule in rules if (reason := rule(rows))), "")
