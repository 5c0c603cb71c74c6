"""The policy's entropy: collapse to one answer, explosion into noise, or a rise worth knowing."""

from __future__ import annotations

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.findings.reward_loss import measure
from sweep.health.metric_names import Quantity, Unit
from sweep.health.metric_table import Series
from sweep.health.trend import final_level, fit_line, start_level


def entropy(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding. Absolute thresholds hold for entropy per token only."""
    found = evidence.measured(Quantity.ENTROPY)
    if found is None or found.unit is Unit.PER_SEQUENCE:
        return ()
    series, limits = found.series, evidence.limits
    start, end = start_level(series.values), final_level(series.values)
    printed_zero = evidence.rounded(found.name) and end == 0
    if end < limits.entropy_floor:
        return (_collapse(evidence, series, start, end, Confidence.MEDIUM if printed_zero else Confidence.HIGH),)
    if end < limits.entropy_low and end * limits.entropy_fall < start:
        return (_collapse(evidence, series, start, end, Confidence.MEDIUM),)
    return _rise(evidence, series, start, end)


def _collapse(evidence: Evidence, series: Series, start: float, end: float, confidence: Confidence) -> Finding:
    dead = end < evidence.limits.entropy_floor
    limit = evidence.limits.entropy_floor if dead else evidence.limits.entropy_low
    solved = dead and _reward_at_best(evidence)
    severity = Severity.CRITICAL if dead and not solved else Severity.WARN
    below = series.values < limit
    above = np.flatnonzero(~below)
    first = int(above[-1]) + 1 if len(above) else 0
    coefficient = evidence.facts.number(keys.ENTROPY_COEFF)
    return Finding(
        code=Code.ENTROPY_COLLAPSE,
        severity=severity,
        metric=series.name,
        first_step=int(series.steps[min(first, len(series) - 1)]),
        last_step=int(series.steps[-1]),
        seen=f"entropy fell from {start:.3g} to {end:.2g} nats per token"
        + ("; the reward is at its best" if solved else ""),
        confidence=confidence,
        advice="the policy no longer explores; go back to a checkpoint from before the fall"
        if not solved
        else "the policy has settled on its answers; training on gains nothing",
        direction=(
            Move(Way.LOWER, keys.ACTOR_LR),
            Move(Way.RAISE, keys.ENTROPY_COEFF, f"now {coefficient:g}" if coefficient is not None else "say 0.001"),
            Move(Way.RAISE, keys.KL_COEF, "at most 0.01"),
        ),
        source="verl#1224; METHOD section 6",
        figures=(("start", start), ("end", end)),
    )


def _rise(evidence: Evidence, series: Series, start: float, end: float) -> tuple[Finding, ...]:
    limits = evidence.limits
    if not end > limits.entropy_rise * start or not _still_rising(series, limits.kl_mean_steps):
        return ()
    reward = evidence.series(Quantity.REWARD)
    falls = reward is not None and measure(evidence, reward) is not None
    over = end > limits.entropy_ceiling
    coefficient = evidence.facts.number(keys.ENTROPY_COEFF)
    blamed = coefficient is not None and coefficient > 0
    first = int(np.argmax(series.values > (limits.entropy_ceiling if over else limits.entropy_rise * start)))
    severity = (Severity.ERROR if falls else Severity.WARN) if over else Severity.INFO
    return (
        Finding(
            code=Code.ENTROPY_EXPLOSION if over else Code.ENTROPY_RISING,
            severity=severity,
            metric=series.name,
            first_step=int(series.steps[first]),
            last_step=int(series.steps[-1]),
            seen=f"entropy rose from {start:.3g} to {end:.3g} nats per token and still rises"
            + ("; the reward falls" if falls else ""),
            advice=(
                f"entropy_coeff is {coefficient:g} > 0: set it to 0 first"
                if blamed
                else "set entropy_coeff to 0 if it is not, then lower the learning rate"
            )
            if over
            else "exploration grows; nothing to do below 1 nat per token",
            direction=(Move(Way.SET, keys.ENTROPY_COEFF, "0"), Move(Way.LOWER, keys.ACTOR_LR)) if over else (),
            source="rllm#116, verl#2738, verl#781; METHOD section 6",
            figures=(("start", start), ("end", end)),
        ),
    )


def _still_rising(series: Series, steps: int) -> bool:
    tail = series.since(int(series.steps[-1]) - steps + 1)
    fit = fit_line(tail.steps, tail.values)
    return fit.slope > 0 and fit.correlation > 0.5


def _reward_at_best(evidence: Evidence) -> bool:
    """Whether the reward has not fallen and lies near the best that any answer of a batch gets."""
    reward, best = evidence.series(Quantity.REWARD), evidence.series(Quantity.REWARD_MAX)
    if reward is None or best is None or measure(evidence, reward) is not None:
        return False
    return final_level(reward.values) >= evidence.limits.saturated_share * float(best.values.max()) > 0
