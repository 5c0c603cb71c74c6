"""Response lengths: cut off, nearly cut off, or collapsed.

verl's V1 trainer takes `clip_ratio` against the longest response of the batch, not against the configured maximum. A
high ratio is then taken for cutting only where that longest response is the same at every step, or equals a known
maximum.
"""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import final_level, start_level

SOURCE = "verl#1224; verl metric_utils.py; METHOD section 6"


def lengths(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding about cutting, or else one about a collapse."""
    cut = _cut(evidence)
    if cut:
        return cut
    return _near_limit(evidence) or _collapse(evidence)


def _cut(evidence: Evidence) -> tuple[Finding, ...]:
    ratio, limits = evidence.series(Quantity.LENGTH_CLIP_RATIO), evidence.limits
    if ratio is None or not _meets_a_maximum(evidence):
        return ()
    level = final_level(ratio.values)
    if level < limits.cut_some:
        return ()
    threshold = next(t for t in (limits.cut_all, limits.cut_many, limits.cut_some) if level >= t)
    all_cut = threshold == limits.cut_all
    below = np.flatnonzero(ratio.values < threshold)
    first = min(int(below[-1]) + 1 if len(below) else 0, len(ratio) - 1)
    severity = {limits.cut_all: Severity.ERROR, limits.cut_many: Severity.WARN}.get(threshold, Severity.INFO)
    return (
        Finding(
            code=Code.LENGTH_SATURATED if all_cut else Code.LENGTH_TRUNCATED,
            severity=severity,
            metric=ratio.name,
            first_step=int(ratio.steps[first]),
            last_step=int(ratio.steps[-1]),
            seen=f"{level:.0%} of the responses reach the maximum length",
            confidence=Confidence.HIGH if not evidence.logged(Quantity.LENGTH_MAX) or all_cut else Confidence.MEDIUM,
            advice="cut responses carry no answer: allow longer ones, or penalise length, "
            "or find why the policy does not stop",
            direction=(Move(Way.RAISE, keys.RESPONSE_LENGTH),),
            source=SOURCE,
            figures=(("cut_share", level),),
        ),
    )


def _meets_a_maximum(evidence: Evidence) -> bool:
    """Whether the longest response tells of a limit: unknown, equal to the configured one, or always the same."""
    longest = evidence.recent_series(Quantity.LENGTH_MAX)
    if longest is None:
        return True
    maximum = evidence.facts.number(keys.RESPONSE_LENGTH)
    if maximum is not None:
        return final_level(longest.values) >= maximum
    return float(np.ptp(longest.values)) == 0


def _near_limit(evidence: Evidence) -> tuple[Finding, ...]:
    """By mean against longest: some are cut from 0.9 on, nearly all from 0.97 on if it stays so."""
    mean, longest = evidence.recent_series(Quantity.LENGTH_MEAN), evidence.recent_series(Quantity.LENGTH_MAX)
    if mean is None or longest is None or not _meets_a_maximum(evidence):
        return ()
    limits = evidence.limits
    share = final_level(mean.values) / max(final_level(longest.values), 1.0)
    if share < limits.length_near:
        return ()
    full = share >= limits.length_full and len(mean) >= limits.plateau_min_points
    return (
        Finding(
            code=Code.LENGTH_SATURATED if full else Code.LENGTH_NEAR_LIMIT,
            severity=Severity.WARN if full else Severity.INFO,
            metric=mean.name,
            first_step=int(mean.steps[0]),
            last_step=int(mean.steps[-1]),
            seen=f"mean length {final_level(mean.values):.4g} near max {final_level(longest.values):.4g}: "
            "truncation is likely",
            confidence=Confidence.MEDIUM,
            advice="see whether responses end by themselves; if not, allow longer ones",
            direction=(Move(Way.CHECK, keys.RESPONSE_LENGTH),),
            source=SOURCE,
            figures=(("share", share),),
        ),
    )


def _collapse(evidence: Evidence) -> tuple[Finding, ...]:
    mean: Series | None = evidence.series(Quantity.LENGTH_MEAN)
    if mean is None or len(mean) < evidence.limits.all_zero_points:
        return ()
    start, end = start_level(mean.values), final_level(mean.values)
    if end > evidence.limits.length_collapse * start:
        return ()
    return (
        Finding(
            code=Code.LENGTH_COLLAPSE,
            severity=Severity.WARN,
            metric=mean.name,
            first_step=int(mean.steps[int(np.argmax(mean.values <= (start + end) / 2))]),
            last_step=int(mean.steps[-1]),
            seen=f"mean response length went from {start:.4g} to {end:.4g} tokens",
            advice="see whether the reward pays for short answers; read a few responses",
            direction=(Move(Way.CHECK, keys.REWARD_PATH),),
            source=SOURCE,
            figures=(("start", start), ("end", end)),
        ),
    )
