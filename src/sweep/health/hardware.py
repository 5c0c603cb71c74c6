"""`hardware`: patterns of GPU samples: idle with full memory, bound by PCIe, free memory that swings, a slow link.

Pure: samples in, findings out; recorded traces replay through the same call as live ones. Values that a device does
not report are None and take part in no rule.

Source: S0 section 1.2; METHOD section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from sweep.core import verl_keys as keys
from sweep.core.within import Within
from sweep.health.code import Code
from sweep.health.finding import Confidence, Finding, Move, Severity, Way

SOURCE = "S0 section 1.2; METHOD section 6"


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one time; `phase` names the part of the step if known."""

    seconds: float
    gpu: int
    utilisation_pct: float | None = None
    total_gib: float | None = None
    free_gib: float | None = None
    pcie_pct: float | None = None
    phase: str = ""
    link_degraded: bool = False

    @property
    def used_share(self) -> float | None:
        """Share of the memory in use."""
        return None if not self.total_gib or self.free_gib is None else 1 - self.free_gib / self.total_gib


PERCENT, SHARE = Within(low=0, high=100), Within(low=0, high=1)


@dataclass(frozen=True, slots=True)
class HardwareLimits:
    """Thresholds of the patterns; percentages are of one sample, shares are of the samples that have the value."""

    idle_pct: Annotated[float, PERCENT] = 30.0
    """Source: S0 section 1.2."""
    full_share: Annotated[float, SHARE] = 0.9
    """Memory that counts as full. Ours: the share that vLLM takes at most."""
    busy_pct: Annotated[float, PERCENT] = 85.0
    """Source: S0 section 1.2."""
    pcie_pct: Annotated[float, PERCENT] = 70.0
    """Source: S0 section 1.2."""
    swing_gib_per_second: Annotated[float, Within(low=0)] = 2.0
    """Source: S0 section 1.2."""
    sustained_share: Annotated[float, SHARE] = 0.6
    """Share of samples that is sustained. Ours."""
    sustained_samples: Annotated[int, Within(low=1)] = 5
    """Samples below which nothing is sustained: ten seconds. Ours."""
    swings: Annotated[int, Within(low=1)] = 3
    """Swings below which memory was merely taken or freed. Ours."""
    gen_share: Annotated[float, SHARE] = 0.5
    """Share of the step from which generation is looked at first. Ours."""


DEFAULT = HardwareLimits()


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """What decides between causes: whether the rollout frees its cache each step, and generation's share of a step."""

    free_cache_engine: bool = True
    gen_share: float | None = None


def hardware(
    samples: Sequence[GpuSample], facts: HardwareFacts | None = None, limits: HardwareLimits = DEFAULT
) -> tuple[Finding, ...]:
    """Findings by GPU in order of their numbers; empty if no pattern shows."""
    known = facts or HardwareFacts()
    rules: tuple[Callable[[Sequence[GpuSample], HardwareFacts, HardwareLimits], Finding | None], ...]
    rules = (_idle, _pcie_bound, _memory_swings, _slow_link)
    found = []
    for gpu in sorted({s.gpu for s in samples}):
        mine = sorted((s for s in samples if s.gpu == gpu), key=lambda s: s.seconds)
        found += [finding for rule in rules if (finding := rule(mine, known, limits)) is not None]
    return tuple(found)


def _sustained(hits: Sequence[bool], limits: HardwareLimits) -> bool:
    return len(hits) >= limits.sustained_samples and sum(hits) >= limits.sustained_share * len(hits)


def _idle(samples: Sequence[GpuSample], facts: HardwareFacts, limits: HardwareLimits) -> Finding | None:
    usable = [(u, used) for s in samples if (u := s.utilisation_pct) is not None and (used := s.used_share) is not None]
    hits = [u < limits.idle_pct and used >= limits.full_share for u, used in usable]
    if not _sustained(hits, limits):
        return None
    rollout = facts.gen_share is not None and facts.gen_share >= limits.gen_share
    return _finding(
        Code.INPUT_OR_ROLLOUT_BOUND,
        samples,
        f"utilisation under {limits.idle_pct:g} % with memory full in {sum(hits)} of {len(hits)} samples"
        + (f"; generation takes {facts.gen_share:.0%} of a step" if facts.gen_share is not None else ""),
        "generation is the bottleneck: tune the token budget (step 3 of the method)"
        if rollout
        else "check the rollout's share of the step first; if it is small, the input is the bottleneck",
        (Move(Way.RAISE, keys.MAX_BATCHED_TOKENS), Move(Way.RAISE, keys.MAX_SEQS))
        if rollout
        else (Move(Way.RAISE, keys.DATALOADER_WORKERS),),
    )


def _pcie_bound(samples: Sequence[GpuSample], facts: HardwareFacts, limits: HardwareLimits) -> Finding | None:
    """Certain with utilisation and enough samples; with less than that only a condition is reported."""
    usable = [s for s in samples if s.pcie_pct is not None]
    busy = [s for s in usable if s.pcie_pct is not None and s.pcie_pct > limits.pcie_pct]
    both = [s.utilisation_pct is None or s.utilisation_pct > limits.busy_pct for s in busy]
    if not usable or sum(both) < limits.sustained_share * len(usable):
        return None
    measured = all(s.utilisation_pct is not None for s in busy)
    sure = measured and len(usable) >= limits.sustained_samples
    highest = max(s.pcie_pct or 0.0 for s in usable)
    condition = "" if measured else f"; it counts only if utilisation is above {limits.busy_pct:g} % too"
    return _finding(
        Code.COMMUNICATION_BOUND,
        samples,
        f"PCIe over {limits.pcie_pct:g} % in {len(busy)} of {len(usable)} samples, up to {highest:.0f} %{condition}",
        "fewer sequence shards talk less",
        (Move(Way.LOWER, keys.ULYSSES, "at most min(4, GPUs), dividing the heads"),),
        severity=Severity.WARN if sure else Severity.INFO,
        confidence=Confidence.HIGH if sure else Confidence.LOW,
    )


def _memory_swings(samples: Sequence[GpuSample], facts: HardwareFacts, limits: HardwareLimits) -> Finding | None:
    """Swings within a phase; across phases only where the rollout keeps its cache: freeing it swings by design."""
    rates = []
    for before, after in pairwise(samples):
        same_phase = before.phase == after.phase and before.phase != ""
        if before.free_gib is None or after.free_gib is None or (facts.free_cache_engine and not same_phase):
            continue
        elapsed = after.seconds - before.seconds
        if elapsed > 0:
            rates.append((after.free_gib - before.free_gib) / elapsed)
    wide = [r for r in rates if abs(r) > limits.swing_gib_per_second]
    if len(wide) < limits.swings or min(wide) > 0 or max(wide) < 0:
        return None
    return _finding(
        Code.MEMORY_FLUCTUATION,
        samples,
        f"free memory swings by more than {limits.swing_gib_per_second:g} GiB/s in {len(wide)} of {len(rates)} "
        "intervals that no change of phase explains",
        "batches differ much in size: switch dynamic batching on or look at padding",
        (Move(Way.SET, keys.ACTOR_DYNAMIC_BATCH, "true"),),
        confidence=Confidence.MEDIUM,
    )


def _slow_link(samples: Sequence[GpuSample], facts: HardwareFacts, limits: HardwareLimits) -> Finding | None:
    """Of samples in which the GPU works: an idle one lowers its link by itself."""
    hits = [s.link_degraded for s in samples if s.utilisation_pct is not None and s.utilisation_pct >= limits.idle_pct]
    if not _sustained(hits, limits):
        return None
    return _finding(
        Code.LINK_DEGRADED,
        samples,
        f"the PCIe link is below its maximum in {sum(hits)} of {len(hits)} samples in which the GPU works",
        "shares of PCIe are of the link as it runs; look at the slot, risers and the BIOS",
        (),
        severity=Severity.INFO,
    )


def _finding(
    code: Code,
    samples: Sequence[GpuSample],
    seen: str,
    advice: str,
    direction: tuple[Move, ...],
    severity: Severity = Severity.WARN,
    confidence: Confidence = Confidence.HIGH,
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        metric=f"gpu/{samples[0].gpu}",
        first_step=None,
        last_step=None,
        seen=seen,
        confidence=confidence,
        advice=advice,
        direction=direction,
        source=SOURCE,
        figures=(("samples", float(len(samples))),),
    )
