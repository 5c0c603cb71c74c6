"""`probe`: how fast vLLM alone generates a training's rollout at one point of its memory settings.

A point takes a minute or two where a trial takes many: the weights are loaded once and nothing is trained. Each has a
process of its own, so that running out of memory at one is a result and not the end. Whether points rank as trials do
is for `benchmarks/bench_token_budget.py` to say.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, stdev
from typing import Any

from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed
from sweep.ending import Classify
from sweep.engines.vllm.console import evidence
from sweep.engines.vllm.environment import variables
from sweep.engines.vllm.own_process import OwnProcess
from sweep.engines.vllm.workload import Workload

POLL_SECONDS = 0.2

START_SECONDS = 900.0
"""How long vLLM may take to start: a first start compiles and captures graphs for minutes. Ours."""

ROUND_SECONDS = 300.0
"""How long one round may take. Ours: a step's rollout that takes longer is no candidate."""


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """A candidate of the stage `token_budget`."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float

    def __str__(self) -> str:
        return f"{self.max_num_batched_tokens}/{self.max_num_seqs}/{self.gpu_memory_utilization:g}"


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What all points share. The defaults are verl's for its rollout; `rounds` are measured after `warmup_rounds`."""

    model: str
    workload: Workload
    rounds: int = 5
    warmup_rounds: int = 2
    seed: int = 0
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    dtype: str = "bfloat16"
    load_format: str = "auto"
    enforce_eager: bool = False
    log_probs: bool = True
    start_seconds: float = START_SECONDS
    round_seconds: float = ROUND_SECONDS

    def spec(self, point: ProbePoint) -> dict[str, Any]:
        """What the measuring process is told, as plain JSON types."""
        return {**asdict(self), **asdict(point)}

    @property
    def timeout_seconds(self) -> float:
        """How long a point may take in all."""
        return self.start_seconds + (self.rounds + self.warmup_rounds) * self.round_seconds


@dataclass(frozen=True, slots=True)
class Probed:
    """A measured point. Memory is of the GPU with least; None where vLLM runs without one.

    `peak_reserved_gib` is the most that torch held at once, the profiling at the start included; `free_gib` the
    least that the device had left after a round.
    """

    point: ProbePoint
    round_tokens_per_s: tuple[float, ...]
    preemptions: int
    kv_cache_tokens: int
    init_seconds: float
    peak_allocated_gib: float | None = None
    peak_reserved_gib: float | None = None
    free_gib: float | None = None
    total_gib: float | None = None
    vllm: str = ""
    wall_seconds: float = field(default=0.0, compare=False)

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated a second, median over the rounds."""
        return median(self.round_tokens_per_s)

    @property
    def standard_error(self) -> float:
        """Of the mean over the rounds; NaN for a single one."""
        rates = self.round_tokens_per_s
        return stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        content = asdict(self)
        error = self.standard_error
        return {
            **content.pop("point"),
            "tokens_per_s": self.tokens_per_s,
            "standard_error": error if math.isfinite(error) else None,
            **content,
            "round_tokens_per_s": list(self.round_tokens_per_s),
        }


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """A point that could not be measured; running out of memory is class `OOM_GPU`."""

    point: ProbePoint
    failure: Failed

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self.point), "failure": self.failure.failure_class.name, "message": self.failure.message}


def probe(point: ProbePoint, settings: ProbeSettings, classify: Classify, log_path: Path) -> Probed | ProbeFailed:
    """The point measured in a process of its own, which is gone when this returns; its console is appended to the log.

    Never raises for what vLLM does.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sweep-probe-") as folder:
        spec, result = Path(folder) / "spec.json", Path(folder) / "result.json"
        spec.write_text(json.dumps(settings.spec(point)), encoding="utf-8")
        arguments = ["-m", "sweep.engines.vllm.probe_child", str(spec), str(result)]
        log_start = log_path.stat().st_size if log_path.exists() else 0
        process = OwnProcess(arguments, variables(settings.model), log_path)
        try:
            in_time = _await(process, result, settings.timeout_seconds)
        finally:
            process.end()
        if result.exists():
            return probed(point, json.loads(result.read_text(encoding="utf-8")), time.monotonic() - began)
        return ProbeFailed(point, _failure(process.log_text(log_start), in_time, settings, classify, log_path))


def probed(point: ProbePoint, result: Mapping[str, Any], wall_seconds: float = 0.0) -> Probed:
    """The point with what the measuring process wrote."""
    return Probed(
        point=point,
        round_tokens_per_s=tuple(r["tokens"] / r["seconds"] for r in result["rounds"]),
        wall_seconds=wall_seconds,
        **{name: value for name, value in result.items() if name != "rounds"},
    )


def _await(process: OwnProcess, result: Path, timeout_seconds: float) -> bool:
    """Whether the result came, or the process ended by itself, within the time."""
    until = time.monotonic() + timeout_seconds
    while process.exit_code() is None and not result.exists():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _failure(log: str, in_time: bool, settings: ProbeSettings, classify: Classify, log_path: Path) -> Failed:
    if not in_time:
        message = f"vLLM did not finish the probe within {settings.timeout_seconds:g} s; log: {log_path}"
        return Failed(FailureClass.HANG, message)
    seen = classify(evidence(log))
    message = f"vLLM failed: {seen.text or 'its console names no cause'}; log: {log_path}"
    return Failed(seen.failure_class, message, fix=seen.fix, retry=seen.retry, abort=seen.abort)
