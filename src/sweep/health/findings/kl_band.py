"""KL of the policy to its reference against its band: explosion, high, low, negative, or not measured.

Each name of KL carries its unit, and each unit its band. KL within one update (`actor/ppo_kl`) is another quantity
and never judged here. Advice on the coefficient goes one way only: high KL wants a stronger penalty.
"""

from __future__ import annotations

import math

import numpy as np

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Confidence, Finding, Move, Severity, Way
from sweep.health.findings.reward_loss import fell_below_start
from sweep.health.limits import Limits
from sweep.health.metric_names import Measured, Quantity, Unit
from sweep.health.metric_table import Series
from sweep.health.trend import episodes, final_level, fit_line, level_points

SOURCE = "S0 sections 1.1 and 2.2; METHOD section 3"
STRONGER = (Move(Way.RAISE, keys.KL_COEF, "at most 0.01"), Move(Way.LOWER, keys.ACTOR_LR))
AT_BOUND = "sweep/kl_coef_at_bound"
"""Metric of our controller: 1 while it has come to a bound and can do no more."""

WEAKER = (Move(Way.LOWER, keys.KL_COEF, "at least 0.0005"),)


def kl_band(evidence: Evidence) -> tuple[Finding, ...]:
    """At most one finding about the level of KL to the reference, and one about a controller that can do no more."""
    kl = evidence.recent(Quantity.REFERENCE_KL)
    if kl is None:
        return _not_measured(evidence)
    level = (finding for rule in (_explosion, _negative, _spikes, _high, _low) if (finding := rule(evidence, kl)))
    first = next(level, None)
    return (*(() if first is None else (first,)), *_at_bound(evidence, kl))


def band(limits: Limits, unit: Unit) -> tuple[float, float]:
    """Healthy KL in the unit."""
    return limits.kl_sequence_band if unit is Unit.PER_SEQUENCE else limits.kl_band


def explosion_limit(limits: Limits, unit: Unit) -> float:
    """KL in the unit that must not be exceeded while climbing; per sequence the band's own upper end."""
    return limits.kl_sequence_band[1] if unit is Unit.PER_SEQUENCE else limits.kl_explosion


def climbs(series: Series, limits: Limits) -> bool:
    """Whether the last `kl_mean_steps` rise by more than a share of their level, and not by one jump alone."""
    tail = series.since(int(series.steps[-1]) - limits.kl_mean_steps + 1)
    fit = fit_line(tail.steps, tail.values)
    if math.isnan(fit.slope):
        return False
    level = max(abs(final_level(tail.values)), 1e-12)
    return fit.slope * tail.span_steps >= limits.kl_climb * level and fit.correlation >= limits.kl_climb_correlation


def climbs_slowly(series: Series, limits: Limits) -> bool:
    """Whether the whole series rises by that share with a slope that its noise excludes to be none, and goes on rising
    in the last `kl_mean_steps`: what rose once and stays is no climb."""
    if series.span_steps < limits.kl_mean_steps:
        return False
    fit = fit_line(series.steps, series.values)
    tail = series.since(int(series.steps[-1]) - limits.kl_mean_steps + 1)
    last = fit_line(tail.steps, tail.values)
    if math.isnan(fit.slope) or math.isnan(last.slope):
        return False
    level = max(abs(final_level(series.values)), 1e-12)
    certain = all(f.slope > limits.kl_climb_errors * f.slope_error for f in (fit, last))
    goes_on = last.slope >= limits.kl_climb_kept * fit.slope and fit.correlation >= limits.kl_climb_correlation
    return certain and goes_on and fit.slope * series.span_steps >= limits.kl_climb * level


def _explosion(evidence: Evidence, kl: Measured) -> Finding | None:
    limits, series = evidence.limits, kl.series
    level, limit = final_level(series.values), explosion_limit(limits, kl.unit)
    if level <= limits.kl_joint_share * limit:
        return None
    fast = climbs(series, limits)
    reward_lost = fell_below_start(evidence)
    if not (fast and reward_lost) and not (level > limit and (fast or climbs_slowly(series, limits))):
        return None
    above = np.flatnonzero(series.values > limits.kl_joint_share * limit if reward_lost else series.values > limit)
    beside = " while the reward fell below its start" if reward_lost else ""
    return _finding(
        evidence,
        kl,
        Code.KL_EXPLOSION,
        Severity.CRITICAL if reward_lost or level > limits.kl_far * limit else Severity.ERROR,
        f"KL at {level:.3g} {kl.unit.value} (limit {limit:g}) and climbing{beside}",
        "the penalty is too weak or the actor too aggressive; go back to a checkpoint from before the climb",
        STRONGER,
        first_step=int(series.steps[above[0]]) if len(above) else None,
    )


def _negative(evidence: Evidence, kl: Measured) -> Finding | None:
    limit = evidence.limits.kl_negative[1 if kl.unit is Unit.PER_SEQUENCE else 0]
    series = kl.series
    last = series.values[-level_points(len(series)) :]
    if len(last) < 3 or not (last < 0).all() or float(np.median(last)) > limit:
        return None
    return _finding(
        evidence,
        kl,
        Code.KL_NEGATIVE,
        Severity.ERROR,
        f"KL stays below zero, at {float(np.median(last)):.3g} {kl.unit.value}: no true KL is negative",
        "samples do not come from the policy that is scored: no top-k, no forced length, temperature 1, "
        "or take an estimator that cannot go below zero",
        (Move(Way.SET, keys.ROLLOUT_TEMPERATURE, "1.0"), Move(Way.SET, keys.ROLLOUT_TOP_K, "-1")),
        source="TRL's PPO documentation and trl#204; verl core_algos kl_penalty",
    )


def _spikes(evidence: Evidence, kl: Measured) -> Finding | None:
    """Points above the explosion limit while the level is in its band."""
    limit = explosion_limit(evidence.limits, kl.unit)
    over = kl.series.values > limit
    if not over.any() or final_level(kl.series.values) > band(evidence.limits, kl.unit)[1]:
        return None
    return _finding(
        evidence,
        kl,
        Code.KL_SPIKE,
        Severity.WARN,
        f"{int(np.count_nonzero(over))} of {len(over)} points above {limit:g} {kl.unit.value} in {episodes(over)} "
        f"episode(s), highest {float(kl.series.values.max()):.3g}; the level is back in its band",
        "single updates went too far: clip harder or lower the learning rate if it happens again",
        (Move(Way.LOWER, keys.ACTOR_CLIP_GRAD), Move(Way.LOWER, keys.ACTOR_LR)),
        first_step=int(kl.series.steps[int(np.argmax(over))]),
    )


def _high(evidence: Evidence, kl: Measured) -> Finding | None:
    limits = evidence.limits
    top = band(limits, kl.unit)[1]
    act = top if kl.unit is Unit.PER_SEQUENCE else limits.kl_actions[1]
    level = _mean(kl.series, limits)
    if level <= top or len(kl.series) < 3:
        return None
    return _finding(
        evidence,
        kl,
        Code.KL_HIGH,
        Severity.WARN if level > act else Severity.INFO,
        f"mean KL {level:.3g} {kl.unit.value} over {_mean_points(kl.series, limits)} points, band up to {top:g}",
        "strengthen the penalty by the factor 1.2 every 100 steps until KL is back in its band",
        STRONGER if level > act else (),
    )


def _low(evidence: Evidence, kl: Measured) -> Finding | None:
    limits = evidence.limits
    level = _mean(kl.series, limits)
    if kl.unit is Unit.PER_SEQUENCE or kl.series.span_steps < limits.kl_mean_steps or level >= limits.kl_actions[0]:
        return None
    if evidence.rounded(kl.name) and level == 0:
        return None
    stuck = not _reward_rises(evidence)
    return _finding(
        evidence,
        kl,
        Code.KL_TOO_LOW,
        Severity.WARN if stuck else Severity.INFO,
        f"mean KL {level:.3g} {kl.unit.value} over {_mean_points(kl.series, limits)} points, below "
        f"{limits.kl_actions[0]:g}; the reward {'does not rise either' if stuck else 'rises all the same'}",
        "the penalty may hold the policy back: weaken it by the factor 0.8 every 100 steps"
        if stuck
        else "nothing to do while the reward rises",
        WEAKER if stuck else (),
        confidence=Confidence.MEDIUM,
    )


def _at_bound(evidence: Evidence, kl: Measured) -> tuple[Finding, ...]:
    """Our controller says so itself, at each step until a reading lies in the band again."""
    held = evidence.table.series(AT_BOUND)
    if held is None or held.values[-1] != 1.0:
        return ()
    high = _mean(kl.series, evidence.limits) > evidence.limits.kl_actions[1]
    free = np.flatnonzero(held.values != 1.0)
    first = int(held.steps[free[-1] + 1]) if len(free) else int(held.steps[0])
    return (
        Finding(
            code=Code.KL_COEF_AT_BOUND,
            severity=Severity.WARN if high else Severity.INFO,
            metric=AT_BOUND,
            first_step=first,
            last_step=int(held.steps[-1]),
            seen="KL is still outside its band, and the coefficient is at its bound",
            advice="a stronger penalty is out of its range: lower the learning rate, or widen the range on purpose"
            if high
            else "the penalty holds nothing back any more; the reward tells whether that matters",
            direction=(Move(Way.LOWER, keys.ACTOR_LR), Move(Way.RAISE, keys.COEF_MAX)) if high else (),
            source="S0 sections 1.3 and 2.2",
        ),
    )


def _not_measured(evidence: Evidence) -> tuple[Finding, ...]:
    """Said only where the log or the configuration shows that KL could have been measured."""
    facts = evidence.facts
    off = facts.flag(keys.KL_IN_REWARD) is False and facts.flag(keys.KL_LOSS) is False
    update = evidence.measured(Quantity.UPDATE_KL)
    if evidence.logged(Quantity.REFERENCE_KL) or not (off or update is not None):
        return ()
    zero = update is not None and not update.series.values.any() and not evidence.rounded(update.name)
    batches = facts.number(keys.TRAIN_BATCH), facts.number(keys.MINI_BATCH)
    one_update = zero and batches[0] is not None and batches[0] == batches[1]
    seen = "KL to the reference is not in the log" + (": neither KL term is on" if off else "")
    if zero:
        seen += f"; KL within an update is 0{' by construction,' if one_update else ', as'} with one update a batch"
    return (
        Finding(
            code=Code.KL_NOT_MEASURED,
            severity=Severity.INFO,
            metric=METRICS["kl_nats"],
            first_step=None,
            last_step=None,
            seen=seen,
            confidence=Confidence.HIGH if off or zero else Confidence.LOW,
            advice="step 2 of the method cannot run until KL to the reference is measured; "
            "KL within an update never stands in for it",
            direction=(
                Move(Way.SET, keys.KL_IN_REWARD, "true, for PPO"),
                Move(Way.SET, keys.KL_LOSS, "true, for GRPO"),
            ),
            source="METHOD sections 3 and 9; verl#791, verl#1265",
        ),
    )


def _reward_rises(evidence: Evidence) -> bool:
    reward = evidence.recent_series(Quantity.REWARD)
    if reward is None:
        return True
    fit = fit_line(reward.steps, reward.values)
    return not fit.slope - 2 * fit.slope_error <= 0


def _mean_points(series: Series, limits: Limits) -> int:
    return len(series.since(int(series.steps[-1]) - limits.kl_mean_steps + 1))


def _mean(series: Series, limits: Limits) -> float:
    return float(np.mean(series.values[-_mean_points(series, limits) :]))


def _finding(
    evidence: Evidence,
    kl: Measured,
    code: Code,
    severity: Severity,
    seen: str,
    advice: str,
    direction: tuple[Move, ...],
    first_step: int | None = None,
    confidence: Confidence = Confidence.HIGH,
    source: str = SOURCE,
) -> Finding:
    steps = kl.series.steps
    return Finding(
        code=code,
        severity=severity,
        metric=kl.name,
        first_step=int(steps[0]) if first_step is None else first_step,
        last_step=int(steps[-1]),
        seen=seen,
        confidence=confidence,
        advice=advice,
        direction=direction,
        source=source,
        figures=(("level", final_level(kl.series.values)), ("mean", _mean(kl.series, evidence.limits))),
    )
