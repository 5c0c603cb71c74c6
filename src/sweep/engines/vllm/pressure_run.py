"""`measure`: a server started, loaded and ended, and its memory judged; `Load`, `Checked`, `PressureReport`.

Where the samples of memory come from is the caller's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from sweep.core.failure import FailureClass
from sweep.engines.vllm.load import Reply, answers, send_together
from sweep.engines.vllm.server import ServerFailed, ServerSettings, VllmServer
from sweep.engines.vllm.workload import Workload
from sweep.health.hardware import GpuSample
from sweep.health.pressure_verdict import Answers, Judgement, PressureLimits, Verdict, judge

OUT_OF_MEMORY = (FailureClass.OOM_GPU, FailureClass.OOM_HOST)
"""Failures that mean that the settings do not fit into this memory."""

WARM_UP_SEED, SEEDS_A_LOAD = -1, 1_000_000
"""Every round has prompts of its own, so that none is served from the prefix cache."""

TakeSamples = Callable[[], Sequence[GpuSample]]
"""The samples since the last call."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rounds of `requests` concurrent requests for at least so many seconds; one round at least."""

    requests: int
    max_tokens: int
    prompt_tokens: int
    seconds: float
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A load and what came of it."""

    load: Load
    rounds: int
    answers: Answers
    judgement: Judgement
    samples: int

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "verdict": self.judgement.verdict.name,
            "reason": self.judgement.reason,
            "lowest_free_gib": self.judgement.lowest_gib,
            "range_gib": self.judgement.range_gib,
            "gpu": self.judgement.gpu,
            "samples": self.samples,
            "requests_at_once": self.load.requests,
            "most_at_once": self.answers.most_at_once,
            "max_tokens": self.load.max_tokens,
            "prompt_tokens": self.load.prompt_tokens,
            "rounds": self.rounds,
            "sent": self.answers.sent,
            "complete": self.answers.complete,
            "tokens": self.answers.tokens,
            "seconds": round(self.answers.seconds, 3),
            "tokens_per_s": round(self.answers.tokens_per_s, 1),
        }


@dataclass(frozen=True, slots=True)
class PressureReport:
    """The whole check. Without `checks` the settings did not start, and `start_failure` says why."""

    settings: ServerSettings
    devices: tuple[str, ...]
    checks: tuple[Checked, ...] = ()
    startup_seconds: float | None = None
    start_failure: Judgement | None = None

    @property
    def judgement(self) -> Judgement:
        """The first that is no pass, else the check's own."""
        if self.start_failure is not None:
            return self.start_failure
        return next((c.judgement for c in self.checks if not c.judgement.passed), self.checks[0].judgement)

    @property
    def passed(self) -> bool:
        """Whether every load left enough memory free."""
        return self.judgement.passed

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "passed": self.passed,
            "verdict": self.judgement.verdict.name,
            "reason": self.judgement.reason,
            "settings": asdict(self.settings),
            "devices": list(self.devices),
            "startup_seconds": self.startup_seconds,
            "checks": [check.to_json() for check in self.checks],
        }

    def as_text(self) -> str:
        """For people: the devices, a line a load, the verdict last."""
        lines = list(self.devices)
        lines += [f"vLLM started in {self.startup_seconds:.0f} s"] if self.startup_seconds is not None else []
        lines += [
            f"{c.answers.complete} of {c.answers.sent} requests answered, {c.answers.most_at_once} at once, "
            f"{c.load.max_tokens} tokens each: {c.answers.tokens_per_s:,.0f} token/s"
            for c in self.checks
        ]
        return "\n".join([*lines, f"{'PASSES' if self.passed else 'FAILS'}: {self.judgement.reason}"])


def measure(
    start: Callable[[], VllmServer],
    loads: Sequence[Load],
    take_samples: TakeSamples,
    *,
    start_seconds: float,
    vocabulary: int | None,
    limits: PressureLimits,
    devices: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> PressureReport:
    """The report on the loads, one after the other up to the first that fails; the server is gone afterwards.

    Raises:
        EngineError: the server did not run, for another reason than its settings.
    """
    server = start()
    try:
        try:
            startup_seconds = server.await_ready(start_seconds)
        except ServerFailed as failure:
            return PressureReport(server.settings, tuple(devices), start_failure=_settings_to_blame(failure))
        say(f"ready after {startup_seconds:.0f} s; warming up, then {loads[0].requests} requests at once")
        _send_rounds(server, loads[0], vocabulary, seed=WARM_UP_SEED, seconds=0.0)
        checks: list[Checked] = []
        for place, load in enumerate(loads):
            checks.append(_check(server, load, take_samples, vocabulary, limits, seed=place * SEEDS_A_LOAD))
            if not checks[-1].judgement.passed:
                break
        return PressureReport(server.settings, tuple(devices), tuple(checks), startup_seconds)
    finally:
        server.close()


def _check(
    server: VllmServer, load: Load, take_samples: TakeSamples, vocabulary: int | None, limits: PressureLimits, seed: int
) -> Checked:
    take_samples()  # what was before does not count
    rounds = _send_rounds(server, load, vocabulary, seed, load.seconds)
    samples = tuple(take_samples())
    found = answers(rounds, load.max_tokens)
    judgement = judge(samples, found, limits)
    if judgement.verdict is Verdict.REQUESTS_FAILED:
        judgement = _explained(judgement, server)
    return Checked(load, len(rounds), found, judgement, len(samples))


def _send_rounds(
    server: VllmServer, load: Load, vocabulary: int | None, seed: int, seconds: float
) -> list[Sequence[Reply]]:
    """At least one round, and none after one in which a request failed."""
    workload = Workload(load.requests, load.prompt_tokens, load.max_tokens)
    rounds: list[Sequence[Reply]] = []
    until = time.monotonic() + seconds
    while not rounds or time.monotonic() < until:
        prompts = workload.prompt_ids(seed + len(rounds), vocabulary)
        rounds.append(send_together(server.port, prompts, load.max_tokens, load.timeout_seconds))
        if any(reply.error for reply in rounds[-1]):
            break
    return rounds


def _settings_to_blame(failure: ServerFailed) -> Judgement:
    """The judgement on settings with which the server cannot start.

    Raises:
        ServerFailed: if something else is to blame.
    """
    if failure.failure_class in OUT_OF_MEMORY:
        return Judgement(Verdict.OUT_OF_MEMORY, str(failure))
    if failure.failure_class is FailureClass.INFEASIBLE_CONFIG:
        return Judgement(Verdict.DOES_NOT_START, str(failure))
    raise failure


def _explained(judgement: Judgement, server: VllmServer) -> Judgement:
    """Failed requests with the cause from the server's console, where it names one."""
    failure = server.failure("failed under load")
    verdict = Verdict.OUT_OF_MEMORY if failure.failure_class in OUT_OF_MEMORY else judgement.verdict
    return Judgement(verdict, f"{judgement.reason}; {failure}" if failure.cause else judgement.reason)
