"""`Limits`: every threshold of the curve rules, with its source; a caller may replace any of them.

Fields are grouped as the rules are. "Ours" marks what no source gives; the reason stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.device_memory import MIN_FREE_GIB


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are the method's; `dataclasses.replace` changes one."""

    window_steps: int = 500
    """The screen looks at the last so many steps. Source: S0 section 1.1."""

    plateau_steps: int = 200
    """Steps in a row without growth that make a plateau. Source: S0 section 1.1."""
    plateau_fluctuation: float = 0.01
    """Range of the reward, highest less lowest, below which it is flat. Source: S0 section 1.1."""
    plateau_growth: float = 0.005
    """Fitted rise over `plateau_steps` that still counts as growth. Ours: half the fluctuation, so that a slow but
    steady climb within the range is no plateau."""
    plateau_min_points: int = 10
    """Points below which flat says nothing at all. Ours."""
    plateau_coverage: float = 0.5
    """Share of the window's logging intervals that must have a point. Ours: a damaged log loses some lines."""
    stalled_growth: float = 0.02
    """A noisy reward is stalled if growth over `plateau_steps` above this is excluded at two standard errors. Ours."""
    saturated_share: float = 0.95
    """Share of the best possible reward from which a flat reward is success. Ours."""

    kl_band: tuple[float, float] = (0.05, 0.15)
    """Healthy KL to the reference, nats per token. Source: S0 section 1.1."""
    kl_actions: tuple[float, float] = (0.04, 0.18)
    """Means of `kl_mean_steps` beyond which the coefficient should move. Source: S0 section 2.2."""
    kl_mean_steps: int = 100
    """Steps over which KL is averaged before acting on it. Source: S0 section 2.2."""
    kl_explosion: float = 0.3
    """KL above this and climbing is out of control, nats per token. Source: S0 section 1.1."""
    kl_sequence_band: tuple[float, float] = (0.0, 10.0)
    """Healthy KL, nats per sequence. Source: trl#612 (its documentation); runs at 6-8 are normal there."""
    kl_far: float = 2.0
    """How many times the explosion limit is beyond what a stronger penalty brings back. Ours: as the limit is to the
    top of its band."""
    kl_climb: float = 0.2
    """Fitted rise over `kl_mean_steps`, as a share of the level, that counts as climbing; over the whole window too if
    it is steady. Ours."""
    kl_climb_correlation: float = 0.5
    """Correlation with time of a climb; one jump alone has less. Ours."""
    kl_climb_errors: float = 2.0
    """Standard errors that the slope of a slow climb exceeds, over the window and at its end. Ours."""
    kl_climb_kept: float = 0.5
    """Share of a slow climb's slope that is left at its end. Ours: a climb that has come to rest has none."""
    kl_joint_share: float = 0.5
    """Share of the explosion limit that suffices where the reward fell below its start. Ours: see trl#1098."""
    kl_negative: tuple[float, float] = (-0.02, -0.5)
    """Level of KL, per token and per sequence, below which sampling noise no longer explains the sign. Ours:
    a batch of real runs at their start scatters within 0.02."""

    grad_band: tuple[float, float] = (1e-2, 1.0)
    """Healthy norm of the actor's gradient before clipping. Source: S0 section 1.1."""
    grad_vanishing: float = 1e-3
    """Norm under which a gradient does nothing. Source: S0 section 1.1."""
    grad_vanishing_steps: int = 50
    """Points that are "long". Ours: a quarter of a plateau."""
    grad_vanishing_share: float = 0.9
    """Share of them under it. Ours: single steps above it do not make the others learn."""
    grad_explosion: float = 10.0
    """Norm that must not be exceeded often. Source: S0 section 1.1."""
    grad_often: float = 0.1
    """Share of the window's points that is often. Ours: 3 spikes in 180 steps recover (trl#101)."""
    grad_often_episodes: int = 3
    """Separate episodes after which spikes that fall back still count as often. Ours."""

    smoothing: float = 0.99
    """Weight of the smoothed curve beside the raw one. Source: S0 section 1.1."""
    oscillation_share: float = 0.05
    """Share of raw points outside the band while the smoothed curve is inside. Ours."""
    oscillation_factor: float = 3.0
    """How many times the smoothed value such a point is off. Ours: real runs scatter by a factor of 2 around it."""
    oscillation_episodes: int = 3
    """Separate excursions that make an oscillation and not one pulse. Ours."""
    cycle_share: float = 0.4
    """Share of the reward's variance in one cycle. Ours."""
    cycle_p_value: float = 1e-3
    """Chance of such a cycle in noise. Ours."""

    all_zero_points: int = 3
    """Points that must all be zero. Ours."""
    all_zero_sure_points: int = 10
    """Points from which it is more than a slow start. Ours."""
    all_zero_dead_points: int = 50
    """Points after which the run is given up. Ours: a tenth of a trial."""
    drop_share: float = 0.5
    """Share of the gain that is lost before a fall is more than noise. Ours."""
    drop_noise: float = 4.0
    """Standard errors of a difference of levels that a fall must exceed. Ours: asked after each of 300 steps of pure
    noise, autocorrelated by 0.5, the rule then fires in about one run of fifty."""
    drop_best_noise: float = 6.0
    """The same where the level fallen from is the best of many, and so a lucky one. Ours."""
    drop_relative: float = 0.1
    """Share of the start level by which a reward below its start is a lost run. Ours."""
    hacking_validation_points: int = 3
    """Validations needed to see one trend against another. Ours."""
    hacking_validation_fall: float = 0.1
    """Share of its best that validation lost while the training reward rose. Ours."""

    entropy_floor: float = 0.01
    """Entropy, nats per token, of a policy that samples one answer. Source: verl#1224."""
    entropy_low: float = 0.05
    """Entropy that heads for the floor, if it was `entropy_fall` times as high. Ours."""
    entropy_fall: float = 5.0
    """How many times lower than at the start. Ours."""
    entropy_ceiling: float = 1.0
    """Entropy above which a rise is no longer exploration. Source: rllm#116, verl#2738."""
    entropy_rise: float = 1.5
    """How many times the start level, so that a base model that starts above 1 is not accused. Ours."""

    cut_all: float = 0.9
    """Share of cut responses that leaves nothing to learn from. Source: verl#1224 (0.95 and up)."""
    cut_many: float = 0.5
    """Share of cut responses that bends the reward. Ours."""
    cut_some: float = 0.1
    """Share of cut responses worth a look. Source: verl's docs/perf/best_practices.rst."""
    length_near: float = 0.9
    """Mean length as a share of the longest response at which many are cut. Ours."""
    length_full: float = 0.97
    """Mean length as a share of the longest response at which nearly all are cut. Ours."""
    length_collapse: float = 0.2
    """Mean length as a share of its start. Ours."""

    vf_loss: float = 0.1
    """Critic loss that is high if it stays. Source: S1 section 4."""
    critic_steps: int = 50
    """Points in a row that are long. Ours: as for the gradient; a fresh critic needs some tens of steps."""
    explained_variance: float = 0.0
    """Below zero the critic is worse than a constant. Source: its definition in verl's metric_utils.py."""
    critic_growth: float = 10.0
    """How many times its start the critic's loss or gradient norm is. Ours: 1000 at the start is normal (verl#5637)."""
    advantage_offset: float = 0.1
    """Mean of whitened advantages that cannot be rounding. Source: S1 section 4 (0.012 is fine). Ours: the number."""

    zero_advantage: float = 1e-8
    """Largest advantage that is zero. Ours: above rounding, below any signal."""
    zero_advantage_share: float = 0.5
    """Share of the last points without advantages that stops learning. Ours."""

    update_kl: float = 0.03
    """KL of one update above which the step was too large. Source: band of verl's ppo_kl in trl#612 and verl logs."""
    update_kl_jump: float = 10.0
    """How many times its usual size a jump is. Source: S1 section 4.2 (0.0001 to 0.003 is one)."""
    clip_fraction: float = 0.3
    """Share of clipped tokens above which updates are mostly thrown away. Ours."""
    rollout_gap: float = 0.05
    """Mean probability difference of a healthy rollout is under this. Ours: a real vLLM run shows 0.008."""
    rollout_correlation: float = 0.95
    """Correlation of a healthy rollout is above this. Ours: a real vLLM run shows 0.999."""

    step_time_jump: float = 2.0
    """How many times slower steps are than before. Ours; verl#1224 shows 4."""
    step_time_points: int = 10
    """Points before a comparison of times says anything. Ours: the first steps warm up."""

    creep_points: int = 50
    """Points before a slope of memory says anything. Ours: running maxima settle within tens of steps."""
    creep_gib_per_100_steps: float = 0.1
    """Smallest slope that matters: 1 GiB in 1000 steps. Ours."""
    creep_blocks: int = 6
    """Parts of the run in which the growth must be seen, not as one step. Ours."""
    guard_free_gib: float = MIN_FREE_GIB
    """Free memory under which a trial must not go on. Source: S0 section 4.2."""
    projection_steps: int = 100
    """A guard reached within so many steps calls for action now, unless the save interval is known. Ours."""


DEFAULT = Limits()
"""The method's thresholds."""

LEAST_COUNTS = {"creep_blocks": 2}
"""The least of a limit that counts; 1 for all others."""

BANDS = frozenset({"kl_band", "kl_actions", "kl_sequence_band", "grad_band"})
"""Pairs of a lower and an upper end; the others are one number for each unit."""

SIGNED = frozenset({"explained_variance"})
"""Limits that may lie below zero."""


def limit_problem(name: str, value: object) -> str:
    """Why the limit of this name cannot have the value, to follow its name; empty if it can."""
    default = getattr(DEFAULT, name)
    if isinstance(default, tuple):
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
        fits = len(parts) == len(default) and all(map(_finite, parts))
        if not fits:
            return f"must be {len(default)} numbers like {list(default)}, got {value!r}"
        rises = name not in BANDS or 0 <= parts[0] < parts[1]
        return "" if rises else f"must rise from at least 0, like {list(default)}, got {list(parts)}"
    if not _finite(value):
        return f"must be a number like {default}, got {value!r}"
    assert isinstance(value, int | float)
    if isinstance(default, float):
        return "" if value >= 0 or name in SIGNED else f"must be at least 0, got {value:.12g}"
    least = LEAST_COUNTS.get(name, 1)
    whole = value >= least and value == int(value)
    return "" if whole else f"must be a whole number, at least {least}, got {value:.12g}; the method's is {default}"


def limit_value(name: str, value: Any) -> Any:
    """The value, in which `limit_problem` finds nothing wrong, in the type of the limit of this name."""
    return type(getattr(DEFAULT, name))(value)


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
