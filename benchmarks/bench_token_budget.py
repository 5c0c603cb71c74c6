"""Does the short probe on vLLM alone rank token budgets as full trials do?

    python -m benchmarks.bench_token_budget model=PATH --campaign runs/NAME --out probe.jsonl

Probes the points that the campaign's stage `token_budget` tried (or --points, without a campaign) and compares their
ranking with the trials' rollout throughput. Needs a GPU and vLLM. Each point is appended to --out as it is measured
and is not measured again by the same command, so an interrupted run goes on. The last line is one JSON object.

With --probed nothing is measured: the ranking that is compared is that of a campaign's own trials of the stage that
were measured by rollout (`stages.token_budget.measure=rollout`).

--campaign takes a campaign's folder, or a JSON file: a list of objects with max_num_batched_tokens, max_num_seqs,
gpu_memory_utilization (--gpu-memory-utilization if missing) and rollout_tokens_per_s.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.token_budget_trials import STAGE, TrialRate, point_fields, read_trials
from sweep.core.failure import FailureClass
from sweep.core.trial import Measure
from sweep.engines.verl.model_facts import read_model
from sweep.engines.vllm.environment import require
from sweep.engines.vllm.formula import held_against
from sweep.engines.vllm.probe import Probed, ProbeFailed, ProbePoint, ProbeSettings, probe
from sweep.engines.vllm.ranking import compare
from sweep.engines.vllm.workload import Workload
from sweep.errors import ConfigError, SweepError
from sweep.health.doctor import classify

UTILIZATION = 0.4
LADDER = "2048:64,4096:128,8192:256,16384:512,16384:1896,32768:1896"  # sweeps/token_budget.yaml


def main() -> int:
    options = _parser().parse_args()
    try:
        summary = run(options)
    except SweepError as problem:
        print(json.dumps({"benchmark": STAGE, "error": str(problem)}))
        return problem.exit_code
    print(json.dumps(summary))
    return 0


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.probed:
        return _compare_campaigns(options)
    model = options.model.removeprefix("model=")
    require(model)
    if not options.cpu:
        _require_gpu()
    trials = read_trials(Path(options.campaign), options.gpu_memory_utilization) if options.campaign else []
    settings = ProbeSettings(
        model=model,
        workload=_workload(options, trials),
        rounds=options.rounds,
        warmup_rounds=options.warmup_rounds,
        dtype=options.dtype,
        enforce_eager=options.enforce_eager,
        start_seconds=options.start_seconds,
    )
    full = _mean_rates(trials)
    points = list(full) or _points(options)
    print(f"{len(points)} points, workload {settings.workload}", flush=True)
    found = _measure(points, settings, Path(options.out), options.limit_seconds)
    short = {ProbePoint(**point_fields(r)): r["tokens_per_s"] for r in found if "tokens_per_s" in r}
    return {
        "formula": _formula(found, model),
        "benchmark": STAGE,
        "model": model,
        "workload": asdict(settings.workload),
        "points": [{**r, "trial_tokens_per_s": full.get(ProbePoint(**point_fields(r)))} for r in found],
        "left": len(points) - len(found),
        **_ranking(short, full),
        "probe_seconds": sum(r.get("wall_seconds", 0.0) for r in found),
        "trial_seconds": sum(seconds for _, _, _, seconds in trials),
    }


def _compare_campaigns(options: argparse.Namespace) -> dict[str, Any]:
    """The stage's own short trials against its full ones."""
    if not options.campaign:
        raise ConfigError("--probed is compared with full trials; name their campaign with --campaign")
    probes = read_trials(Path(options.probed), options.gpu_memory_utilization, Measure.ROLLOUT)
    trials = read_trials(Path(options.campaign), options.gpu_memory_utilization)
    short, full = _mean_rates(probes), _mean_rates(trials)
    return {
        "benchmark": STAGE,
        "model": options.model.removeprefix("model="),
        "points": [
            {**asdict(point), "tokens_per_s": rate, "trial_tokens_per_s": full.get(point)}
            for point, rate in short.items()
        ],
        **_ranking(short, full),
        "probe_seconds": sum(seconds for _, _, _, seconds in probes),
        "trial_seconds": sum(seconds for _, _, _, seconds in trials),
    }


def _ranking(short: dict[ProbePoint, float], full: dict[ProbePoint, float]) -> dict[str, Any]:
    comparison = compare(short, full)
    return {
        "compared": comparison.points,
        "spearman": _finite(comparison.spearman),
        "kendall": _finite(comparison.kendall),
        "probe_best": comparison.short_best and str(comparison.short_best),
        "trial_best": comparison.full_best and str(comparison.full_best),
        "lost_share": _finite(comparison.lost_share),
    }


def _formula(found: Sequence[dict[str, Any]], model: str) -> dict[str, Any] | None:
    """S0's formula beside the measured points; None without a GPU or for a model whose shape is not known."""
    measured = [(r["max_num_batched_tokens"], float(r["kv_cache_tokens"])) for r in found if r.get("kv_cache_tokens")]
    refused = [r["max_num_batched_tokens"] for r in found if r.get("failure") == FailureClass.OOM_GPU.name]
    gpu_gib = next((r["total_gib"] for r in found if r.get("total_gib")), None)
    check = held_against(measured, refused, read_model(model), gpu_gib) if gpu_gib else None
    return check and asdict(check)


def _mean_rates(trials: Sequence[TrialRate]) -> dict[ProbePoint, float]:
    return {p: fmean([rate for q, rate, _, _ in trials if q == p]) for p in dict.fromkeys(t[0] for t in trials)}


def _workload(options: argparse.Namespace, trials: Sequence[TrialRate]) -> Workload:
    """Shaped as the trials were, where the command line does not say otherwise."""
    facts = trials[0][2] if trials else {}
    return Workload(
        prompts=options.prompts or int(facts.get("prompts", 1024)),
        prompt_tokens=options.prompt_tokens,
        response_tokens=options.response_tokens or int(facts.get("response_tokens", 128)),
        samples=options.samples or int(facts.get("samples", 1)),
        spread=options.spread,
    )


def _points(options: argparse.Namespace) -> list[ProbePoint]:
    pairs = [part.split(":") for part in options.points.split(",")]
    return [ProbePoint(int(budget), int(seqs), options.gpu_memory_utilization) for budget, seqs in pairs]


def _measure(
    points: Sequence[ProbePoint], settings: ProbeSettings, out: Path, limit_seconds: float
) -> list[dict[str, Any]]:
    """One entry a point, in order; those that the time did not suffice for are left out."""
    shared = json.loads(json.dumps(asdict(settings)))
    known = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    began, found = time.monotonic(), []
    for point in points:
        entry = next((k for k in known if k["settings"] == shared and point_fields(k) == asdict(point)), None)
        if entry is None:
            if time.monotonic() - began > limit_seconds:
                break
            outcome = probe(point, settings, classify, out.with_suffix(".log"))
            entry = {**outcome.to_json(), "settings": shared}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            print(_line(outcome), flush=True)
        found.append({k: v for k, v in entry.items() if k != "settings"})
    return found


def _line(outcome: Probed | ProbeFailed) -> str:
    if isinstance(outcome, ProbeFailed):
        return f"{outcome.point}: {outcome.failure.failure_class.value}: {outcome.failure.message}"
    free = "" if outcome.free_gib is None else f", {outcome.free_gib:.1f} GiB free"
    return (
        f"{outcome.point}: {outcome.tokens_per_s:,.0f} token/s (+-{outcome.standard_error:,.0f}), "
        f"{outcome.preemptions} preemptions, cache {outcome.kv_cache_tokens:,} tokens{free}, "
        f"{outcome.init_seconds:.0f} s to start, {outcome.wall_seconds:.0f} s in all"
    )


def _require_gpu() -> None:
    from sweep.adapters.nvml_probe import read

    reading = read()
    if not reading.devices:
        raise ConfigError(f"the probe needs an NVIDIA GPU: {reading.problem}; --cpu probes vLLM's CPU build")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", help="model=PATH")
    add("--campaign", help="a campaign's folder, or a JSON file of trials")
    add("--probed", help="folder of a campaign whose trials of the stage were measured by rollout")
    add("--points", default=LADDER, help="BUDGET:SEQUENCES,... (%(default)s)")
    add("--gpu-memory-utilization", type=float, default=UTILIZATION, help="of --points (%(default)s)")
    add("--prompts", type=int, help="prompts of a round (the trials' batch, else 1024)")
    add("--samples", type=int, help="responses a prompt (the trials', else 1)")
    add("--prompt-tokens", type=int, default=128, help="(%(default)s)")
    add("--response-tokens", type=int, help="(the trials' mean, else 128)")
    add("--spread", type=float, default=0.0, help="responses differ in length by up to this share (%(default)s)")
    add("--rounds", type=int, default=5, help="measured rounds (%(default)s)")
    add("--warmup-rounds", type=int, default=2, help="rounds before them (%(default)s)")
    add("--dtype", default="bfloat16")
    add("--enforce-eager", action="store_true", help="no CUDA graphs")
    add("--start-seconds", type=float, default=600.0, help="time that vLLM has to start (%(default)s)")
    add("--limit-seconds", type=float, default=math.inf, help="start no point after this time")
    add("--out", default="probe.jsonl", help="(%(default)s)")
    add("--cpu", action="store_true", help="vLLM's CPU build")
    return parser


if __name__ == "__main__":
    sys.exit(main())
