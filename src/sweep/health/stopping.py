"""`Guard`: asked after every step of a running trial whether it shall stop, and why.

The reasons are the findings that leave nothing to hope for (`consequence`): the same rules and thresholds that judge a
finished log, on the rows so far. Numbers that are not finite stop a trial at once, gradient norms after some steps in a
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sweep.health.code import Code
from sweep.health.consequence import Fate, consequence
from sweep.health.evidence import Evidence
from sweep.health.finding import Finding
from sweep.health.findings.entropy import entropy
from sweep.health.findings.gradient_band import gradient_band
from sweep.health.findings.kl_band import kl_band
from sweep.health.findings.non_finite import non_finite
from sweep.health.findings.reward_loss import reward_loss
from sweep.health.limits import DEFAULT, Limits
from sweep.health.metric_names import ALIASES, Quantity
from sweep.health.metric_table import MetricTable

HEADLINES = (
    "critic/score/mean",
    "critic/rewards/mean",
    "critic/vf_loss",
    "actor/pg_loss",
    "actor/entropy",
    "actor/reward_kl_penalty",
    "actor/kl_loss",
)
"""The metrics that every decision about a trial reads; none of them recovers once it is not a number. Others may be
undefined in a sound run."""

NORMS = ("actor/grad_norm", "critic/grad_norm")
"""The gradient norms. verl skips an update whose norm is not finite and goes on, so one such step is not the end.

Source: verl 0.9.1 workers/engine/fsdp/transformer_impl.py, `optimizer_step`.
"""

SKIPPED_STEPS = 3
"""Steps in a row without a finite norm after which nothing is learnt any more. Ours: a batch that overflows passes
with the next one, weights that are not finite do not."""

RULES: Mapping[Code, Callable[[Evidence], tuple[Finding, ...]]] = {
    Code.NON_FINITE: non_finite,
    Code.KL_EXPLOSION: kl_band,
    Code.GRAD_EXPLOSION: gradient_band,
    Code.ENTROPY_COLLAPSE: entropy,
    Code.REWARD_ALL_ZERO: reward_loss,
}
"""Finding to the rule that makes it: all that a guard can stop on."""

STOP_ON = tuple(code.name for code in RULES)
"""What stops a trial unless a configuration says otherwise."""

READ = frozenset(
    alias.name
    for quantity in (
        Quantity.REWARD,
        Quantity.REWARD_MAX,
        Quantity.REFERENCE_KL,
        Quantity.UPDATE_KL,
        Quantity.GRAD_NORM,
        Quantity.ENTROPY,
    )
    for alias in ALIASES[quantity]
)
"""What the rules read of a row; the rest is not kept."""


class Guard:
    """Belongs to one trial."""

    def __init__(self, stop_on: Sequence[str] = STOP_ON, limits: Limits = DEFAULT) -> None:
        """Stops on the findings of these names, judged by these limits.

        Raises:
            ValueError: for a finding that no guard knows.
        """
        unknown = [name for name in stop_on if name not in STOP_ON]
        if unknown:
            raise ValueError(f"no guard stops on {unknown[0]}; they know {', '.join(STOP_ON)}")
        self._codes = tuple(Code[name] for name in stop_on)
        self._limits = limits
        self._rows: list[tuple[int, dict[str, float]]] = []
        self._skipped = dict.fromkeys(NORMS, 0)

    def observe(self, step: int, metrics: Mapping[str, float]) -> str:
        """Takes note of a finished step; the finding that ends the trial in words, or the empty string."""
        unusable = {n for n in (*HEADLINES, *NORMS) if n in metrics and not math.isfinite(metrics[n])}
        for name in metrics.keys() & self._skipped.keys():
            self._skipped[name] = self._skipped[name] + 1 if name in unusable else 0
        passing = {name for name in NORMS if name in unusable and self._skipped[name] < SKIPPED_STEPS}
        kept = {name: value for name, value in metrics.items() if name in READ and name not in passing}
        self._rows.append((step, kept))
        broken = {name: metrics[name] for name in (*HEADLINES, *NORMS) if name in unusable - passing}
        stopped = self._reason([(step, broken)], Code.NON_FINITE) if broken else ""
        return stopped or self._reason(self._rows, *(code for code in RULES if code is not Code.NON_FINITE))

    def _reason(self, rows: Sequence[tuple[int, Mapping[str, float]]], *codes: Code) -> str:
        wanted = [code for code in codes if code in self._codes]
        evidence = Evidence.of(MetricTable.from_rows(rows if wanted else ()), limits=self._limits)
        found = (finding for code in wanted for finding in RULES[code](evidence) if finding.code is code)
        with np.errstate(all="ignore"):  # numbers near the largest overflow in a variance, which no rule minds
            fatal = next((f for f in found if consequence(f).fate is not Fate.KEEP), None)
        return "" if fatal is None else in_words(fatal)


def in_words(finding: Finding) -> str:
    """What a trial's record says of the finding that ended it."""
    return f"{finding.code.name} at step {finding.steps}: {finding.metric}: {finding.seen}; {finding.advice}"
