"""Reward hacking: the training reward rises while something that should rise with it does not."""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.findings.kl_band import climbs, explosion_limit
from sweep.health.metric_names import Quantity
from sweep.health.metric_table import Series
from sweep.health.trend import final_level, fit_line, start_level

SOURCE = "METHOD section 6"


def hacking(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding: validation first, then the signs that stand in for it."""
    reward = evidence.series(Quantity.REWARD)
    if reward is None or len(reward) < evidence.limits.all_zero_points or not _rises(reward):
        return ()
    return _against_validation(evidence, reward) or _by_signs(evidence, reward)


def _rises(reward: Series) -> bool:
    """Whether the reward ends above its start by a clear, fitted rise."""
    fit = fit_line(reward.steps, reward.values)
    gained = final_level(reward.values) - start_level(reward.values)
    return fit.slope - 2 * fit.slope_error > 0 and gained > 0.02


def _against_validation(evidence: Evidence, reward: Series) -> tuple[Finding, ...]:
    validation, limits = evidence.validation(), evidence.limits
    if validation is None or len(validation) < limits.hacking_validation_points:
        return ()
    best = int(np.argmax(validation.values))
    after = reward.since(int(validation.steps[best]))
    lost = float(validation.values[best] - validation.values[-1])
    falls = lost > max(0.01, limits.hacking_validation_fall * abs(float(validation.values[best])))
    if not falls or len(after) < 2 or final_level(after.values) <= start_level(after.values):
        return ()
    return (
        Finding(
            code=Code.REWARD_HACKING,
            severity=Severity.ERROR,
            metric=validation.name,
            first_step=int(validation.steps[best]),
            last_step=int(validation.steps[-1]),
            seen=f"since step {int(validation.steps[best])} validation fell from {validation.values[best]:.4g} to "
            f"{validation.values[-1]:.4g} while the training reward rose to {final_level(reward.values):.4g}",
            confidence=Confidence.HIGH if len(validation) - best > 2 else Confidence.MEDIUM,
            advice="read responses with high reward; tighten the reward, strengthen the KL penalty, "
            "and keep the checkpoint with the best validation",
            direction=(Move(Way.CHECK, keys.REWARD_PATH), Move(Way.RAISE, keys.KL_COEF, "at most 0.01")),
            source=SOURCE,
            figures=(("validation_lost", lost),),
        ),
    )


def _by_signs(evidence: Evidence, reward: Series) -> tuple[Finding, ...]:
    """Without validation: reward up, KL out of its band and climbing, or responses shrunk to nothing."""
    signs = []
    kl = evidence.recent(Quantity.REFERENCE_KL)
    if kl is not None and climbs(kl.series, evidence.limits):
        level, limit = final_level(kl.series.values), explosion_limit(evidence.limits, kl.unit)
        signs += [f"KL climbed to {level:.3g}"] if level > limit else []
    length = evidence.series(Quantity.LENGTH_MEAN)
    if length is not None:
        start, end = start_level(length.values), final_level(length.values)
        shrank = end <= evidence.limits.length_collapse * start
        signs += [f"lengths fell from {start:.4g} to {end:.4g}"] if shrank else []
    if not signs:
        return ()
    return (
        Finding(
            code=Code.REWARD_HACKING,
            severity=Severity.WARN,
            metric=reward.name,
            first_step=int(reward.steps[0]),
            last_step=int(reward.steps[-1]),
            seen=f"reward rose to {final_level(reward.values):.4g} while " + " and ".join(signs),
            confidence=Confidence.LOW,
            advice="validate and read responses with high reward before trusting the rise",
            direction=(Move(Way.CHECK, keys.REWARD_PATH), Move(Way.RAISE, keys.KL_COEF, "at most 0.01")),
            source=SOURCE,
        ),
    )
