"""`efficiency`: eta of a candidate against a baseline over seeds, with a confidence interval; `pooled_variance`.

Runs are paired by seed: `candidates[i]` and `bases[i]` share seed and data order, and what the seed does to both
cancels (common random numbers). The mean of the pairs' log ratios is log eta. Its error comes from the spread between
pairs, which contains the error within each run; with `pooled_variance` from all replicated arms of a campaign, whose
many degrees of freedom make three seeds useful, and never less than the errors within the runs account for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sweep.core.curve import Curve
from sweep.stats.estimate import UNKNOWN, Estimate, Interval, Spread, interval, no_interval
from sweep.stats.gain import DEFAULT_GAIN, Gain, common_start, gain_of
from sweep.stats.timing import step_time

LEVEL = 0.95
"""Confidence level of a printed interval."""

PRIOR_CV = 0.10
"""Spread between seeds assumed where nothing was replicated. Ours: twice the 4.5 % that step time and gain together
showed over four seeds of one baseline on a shared CPU. Printed, never decided on."""


def run_efficiency(
    curve: Curve, *, warmup_steps: int, gain: Gain = DEFAULT_GAIN, start: float | None = None
) -> Estimate:
    """Reward gained per second of a training step, dR / T, of one run; may be negative. Source: S0 section 2.1."""
    gained = gain_of(gain)(curve.score, start)
    seconds = step_time(curve.step_seconds, warmup_steps)
    if not gained.known or not seconds.known:
        return UNKNOWN
    value = gained.value / seconds.value
    error = math.hypot(gained.standard_error / seconds.value, value * seconds.relative_error)
    return Estimate(value, error, min(gained.degrees, seconds.degrees))


def efficiency(
    candidates: Sequence[Curve],
    bases: Sequence[Curve],
    *,
    warmup_steps: int,
    prior_cv: float = PRIOR_CV,
    pooled_variance: Spread | None = None,
    gain: Gain = DEFAULT_GAIN,
    level: float = LEVEL,
) -> Interval:
    """eta = (dR1 / T1) / (dR0 / T0), geometric mean over the pairs; 1.0 is no better than the baseline.

    Runs beyond the shorter side have no partner and are left out. A candidate that lost reward in some seed has no
    logarithm there: then the ratios themselves are averaged. If the baseline gained nothing there is no ratio.

    Source: S0 section 2.1, METHOD section 2. Ours: pairing, interval, pooling, the start that all runs share.
    """
    ones, zeros = _run_efficiencies([candidates, bases], warmup_steps, gain)
    return ratio(ones, zeros, prior_cv=prior_cv, pooled_variance=pooled_variance, level=level)


def _run_efficiencies(arms: Sequence[Sequence[Curve]], warmup_steps: int, gain: Gain) -> list[list[Estimate]]:
    start = common_start(c.score for arm in arms for c in arm)
    return [[run_efficiency(c, warmup_steps=warmup_steps, gain=gain, start=start) for c in arm] for arm in arms]


def ratio(
    candidates: Sequence[Estimate],
    bases: Sequence[Estimate],
    *,
    prior_cv: float = PRIOR_CV,
    pooled_variance: Spread | None = None,
    level: float = LEVEL,
) -> Interval:
    """The mean ratio of paired scores with its interval: `efficiency` for any score of which more is better."""
    pairs = [(c, b) for c, b in zip(candidates, bases, strict=False) if c.known and b.known]
    if not pairs:
        return no_interval("no seed was measured in both arms")
    if any(b.value <= 0 for _, b in pairs):
        lost = min(b.value for _, b in pairs)
        return no_interval(f"the baseline must gain in every seed for a ratio to exist, got {lost:.3g}")
    logarithmic = all(c.value > 0 for c, _ in pairs)
    shares = np.array([c.value / b.value for c, b in pairs])
    points = np.log(shares) if logarithmic else shares
    within = np.array([_within(c, b, logarithmic) for c, b in pairs])
    measured = Spread(float(points.var(ddof=1)) / 2, len(pairs) - 1) if len(pairs) > 1 else None
    variance, degrees = _variance(measured, pooled_variance if logarithmic else None, prior_cv)
    error = math.sqrt(max(2 * variance, float(within.mean())) / len(pairs))
    middle = math.exp(float(points.mean())) if logarithmic else float(points.mean())
    return interval(middle, error, degrees, logarithmic=logarithmic, level=level)


def pooled_variance(arms: Sequence[Sequence[Curve]], *, warmup_steps: int, gain: Gain = DEFAULT_GAIN) -> Spread | None:
    """Seed-to-seed variance over all arms of a campaign, runs in the order of their seeds; None without replicates.

    Additive model: log efficiency = arm + seed + rest; the variance of the rest. With one replicated arm the seed
    cannot be told from the rest and the arm's whole variance is returned, which is the larger of the two.
    """
    return pooled_spread(_run_efficiencies(arms, warmup_steps, gain))


def pooled_spread(arms: Sequence[Sequence[Estimate]]) -> Spread | None:
    """`pooled_variance` for any positive score; runs that are unknown or not positive are left out."""
    points = [
        (arm, seed, math.log(e.value))
        for arm, runs in enumerate(arms)
        for seed, e in enumerate(runs)
        if e.known and e.value > 0
    ]
    if not points:
        return None
    return _residual_spread(points, with_seeds=True) or _residual_spread(points, with_seeds=False)


def combined(*spreads: Spread | None) -> Spread | None:
    """One spread from independent ones, each by its degrees; None without any."""
    known = [s for s in spreads if s is not None and s.degrees > 0]
    degrees = sum(s.degrees for s in known)
    return Spread(sum(s.variance * s.degrees for s in known) / degrees, degrees) if known else None


def _residual_spread(points: Sequence[tuple[int, int, float]], *, with_seeds: bool) -> Spread | None:
    """Mean square left by least squares on arms (and seeds); None if nothing is left over."""
    arms = sorted({arm for arm, _, _ in points})
    seeds = sorted({seed for _, seed, _ in points}) if with_seeds else []
    design = np.array([[float(a == arm) for arm in arms] + [float(s == seed) for seed in seeds] for a, s, _ in points])
    values = np.array([value for _, _, value in points])
    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    degrees = len(points) - int(rank)
    if degrees < 1:
        return None
    rest = values - design @ solution
    return Spread(float(rest @ rest) / degrees, degrees)


def _variance(measured: Spread | None, pooled: Spread | None, prior_cv: float) -> tuple[float, float]:
    """Variance of one run and its degrees: the spread with more degrees behind it, the assumed one without any."""
    known = [s for s in (pooled, measured) if s is not None and s.degrees > 0]
    if not known:
        return prior_cv**2, 0
    best = max(known, key=lambda s: s.degrees)
    return best.variance, best.degrees


def _within(candidate: Estimate, base: Estimate, logarithmic: bool) -> float:
    """Variance of a pair's (log) ratio by the errors within its two runs; 0 where they are unknown."""
    base_share = base.relative_error
    own = candidate.relative_error if logarithmic else candidate.standard_error / base.value
    other = base_share if logarithmic else base_share * candidate.value / base.value
    total = own**2 + other**2
    return total if math.isfinite(total) else 0.0
