"""`judge`: whether a loaded vLLM leaves enough memory free, from samples of it and from what became of the requests.

Pure: it measures nothing. The article's check: ten concurrent requests of 128 tokens, free memory steady above 5 GB.

Source: S0 section 2.3; METHOD section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sweep.health.hardware import GpuSample

REQUESTS = 10
"""Concurrent requests of the check. Source: S0 section 2.3."""

MAX_TOKENS = 128
"""Tokens that each request generates. Source: S0 section 2.3."""


class Verdict(Enum):
    """How the check ended; only `PASSES` is a pass."""

    PASSES = "passes"
    OUT_OF_MEMORY = "out of memory"
    DOES_NOT_START = "the settings do not start"
    LOW_MEMORY = "too little memory free"
    UNSTEADY = "free memory is not steady"
    REQUESTS_FAILED = "requests failed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class PressureLimits:
    """Thresholds of the check."""

    free_gib: float = 5.0
    """Free memory below which it fails, on any GPU. Source: S0 section 2.3 (GB there; a GiB is 7 % stricter)."""
    steady_gib: float = 0.25
    """Range of free memory that is steady in any case. Ours: small allocations of the driver and of the sampler."""
    samples: int = 5
    """Samples a GPU below which nothing can be called steady. Ours."""


DEFAULT = PressureLimits()


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of the requests: how many were sent and answered in full, tokens generated, and in what time."""

    sent: int
    complete: int
    tokens: int
    seconds: float
    most_at_once: int = 0
    error: str = ""

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated a second over all requests; 0 if no time passed."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, why, and the figures behind it; `lowest_gib` and `range_gib` are of the worst GPU."""

    verdict: Verdict
    reason: str
    lowest_gib: float | None = None
    range_gib: float | None = None
    gpu: int | None = None

    @property
    def passed(self) -> bool:
        """True only if everything held."""
        return self.verdict is Verdict.PASSES


def judge(samples: Sequence[GpuSample], answers: Answers, limits: PressureLimits = DEFAULT) -> Judgement:
    """The judgement over samples taken under load; the worst GPU decides.

    Not steady is free memory that moved by more than `steady_gib` and that would leave the floor if it fell by its
    range once more: a larger range high above the floor does no harm.
    """
    if answers.complete < answers.sent or answers.sent == 0:
        why = f": {answers.error}" if answers.error else ""
        return Judgement(Verdict.REQUESTS_FAILED, f"{answers.complete} of {answers.sent} requests were answered{why}")
    by_gpu: dict[int, list[float]] = {}
    for sample in samples:
        if sample.free_gib is not None:
            by_gpu.setdefault(sample.gpu, []).append(sample.free_gib)
    if not by_gpu or min(len(values) for values in by_gpu.values()) < limits.samples:
        seen = min((len(values) for values in by_gpu.values()), default=0)
        return Judgement(
            Verdict.NOT_MEASURED, f"free memory was sampled {seen} times, at least {limits.samples} are needed"
        )
    return min((_of_gpu(gpu, by_gpu[gpu], limits) for gpu in sorted(by_gpu)), key=_goodness)


def _of_gpu(gpu: int, free_gib: Sequence[float], limits: PressureLimits) -> Judgement:
    lowest, width = min(free_gib), max(free_gib) - min(free_gib)
    if lowest < limits.free_gib:
        verdict = Verdict.LOW_MEMORY
        reason = f"{lowest:.2f} GiB free on GPU {gpu}, wanted {limits.free_gib:g}"
    elif width > limits.steady_gib and lowest - width < limits.free_gib:
        verdict = Verdict.UNSTEADY
        reason = (
            f"free memory of GPU {gpu} moved by {width:.2f} GiB down to {lowest:.2f}: another such fall and less than "
            f"{limits.free_gib:g} are left"
        )
    else:
        verdict = Verdict.PASSES
        reason = f"at least {lowest:.2f} GiB stayed free, wanted {limits.free_gib:g}"
    return Judgement(verdict, reason, lowest, width, gpu)


def _goodness(judgement: Judgement) -> tuple[bool, float]:
    """Passing GPUs last, the least free memory first."""
    return judgement.passed, judgement.lowest_gib or 0.0
