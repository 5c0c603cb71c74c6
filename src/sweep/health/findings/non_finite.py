"""NaN and infinity in any metric: which came first, in which part, and whether training went on.

Every column is scanned, not only the three of the screen. A gradient norm that is not finite for a single step makes
verl skip that update, and the run may go on; every other training metric never comes back by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence
from sweep.health.finding import Finding, Move, Severity, Way
from sweep.health.metric_names import ALIASES, PREFIXES, Quantity
from sweep.health.metric_table import Series

SIDE_PREFIXES = (
    "perf/", "timing", "val-", "val/", "eval/", "rollout_corr/", "training/", "global_seqlen/", "num_turns/",
    "response", "prompt_length/",
)  # fmt: skip
"""Metrics that may be undefined in a sound run: a correlation of constants, a share of nothing. Ours."""

SOURCE = "verl#721, verl#747, verl#891, verl#2626, verl#498; verl engine transformer_impl.py (skipped updates)"

_NORMS = frozenset(
    prefix + alias.name
    for quantity in (Quantity.GRAD_NORM, Quantity.CRITIC_GRAD_NORM)
    for alias in ALIASES[quantity]
    for prefix in PREFIXES
)


def non_finite(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding about training metrics and one about side metrics, each if there is any."""
    bad = [s for s in (_if_bad(evidence, name) for name in evidence.table.names) if s is not None]
    side = [s for s in bad if s.name.startswith(SIDE_PREFIXES)]
    training = [s for s in bad if not s.name.startswith(SIDE_PREFIXES)]
    found = [_training(training)] if training else []
    return (*found, *([_side(side)] if side else []))


def _if_bad(evidence: Evidence, name: str) -> Series | None:
    series = evidence.table.series(name)
    return series if series is not None and series.first_bad_step is not None else None


def _first(series: Sequence[Series]) -> int:
    return min(s.first_bad_step for s in series if s.first_bad_step is not None)


def _training(bad: Sequence[Series]) -> Finding:
    first = _first(bad)
    leaders = [s.name for s in bad if s.first_bad_step == first]
    skipped = all(s.recovered and s.name in _NORMS for s in bad)
    metric = next((n for n in leaders if not n.startswith("critic/")), leaders[0])
    last = max(int(s.steps[~np.isfinite(s.values)][-1]) for s in bad)
    others = f", {len(bad) - len(leaders)} more later" if len(bad) > len(leaders) else ""
    return Finding(
        code=Code.NON_FINITE,
        severity=Severity.WARN if skipped else Severity.CRITICAL,
        metric=metric,
        first_step=first,
        last_step=last,
        seen=f"not finite from step {first}: {', '.join(leaders)}{others}"
        + ("; finite again since: verl skipped those updates" if skipped else ""),
        advice=_advice(metric, first, skipped),
        direction=_direction(metric),
        source=SOURCE,
        figures=(("metrics", float(len(bad))), ("first_bad_step", float(first))),
    )


def _advice(metric: str, first: int, skipped: bool) -> str:
    if skipped:
        return "lower the learning rate or clip harder if it happens again"
    if metric.startswith("critic/"):
        return (
            "advantages from this critic are worthless. Check that the critic's normalised mini batch, "
            "mini batch x n / GPUs, is at least its micro batch per GPU and a multiple of it"
        )
    return (
        f"stop here: the last usable checkpoint is from before step {first}. Do not score the run and do not resume "
        "the same configuration from that checkpoint; check that the normalised mini batch per GPU is at least the "
        "micro batch, then lower the learning rate"
    )


def _direction(metric: str) -> tuple[Move, ...]:
    if metric.startswith("critic/"):
        return (
            Move(Way.CHECK, keys.CRITIC_MINI_BATCH),
            Move(Way.CHECK, keys.CRITIC_MICRO_BATCH),
            Move(Way.LOWER, keys.CRITIC_LR),
        )
    return (
        Move(Way.LOWER, keys.ACTOR_LR),
        Move(Way.LOWER, keys.ACTOR_CLIP_GRAD),
        Move(Way.CHECK, keys.ACTOR_MICRO_BATCH),
    )


def _side(bad: Sequence[Series]) -> Finding:
    first = _first(bad)
    return Finding(
        code=Code.SIDE_METRIC_NON_FINITE,
        severity=Severity.INFO,
        metric=bad[0].name,
        first_step=first,
        last_step=max(int(s.steps[-1]) for s in bad),
        seen="not finite: " + ", ".join(sorted(s.name for s in bad)[:5]),
        advice="no training quantity is affected; often a mean of nothing or a correlation of constants",
        source="METHOD section 6",
    )
