"""Answers for the method's steps: mini-batches and eta, KL updates, token budgets, the clipping schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core import verl_keys as keys
from sweep.core.clip_schedule import DECAY_PER_STEP, FLOOR, max_norm
from sweep.core.curve import METRICS, Curve
from sweep.core.decision import Freeze
from sweep.core.kl_band import KlBandSettings, at_bound, next_coefficient
from sweep.core.lattice import nearest_valid, valid_mini_batches
from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress, Record
from sweep.core.stage import Knob, Ladder, LadderRule, Rung, Stage, StageBudget
from sweep.core.token_budget import (
    DEFAULT_BUDGET,
    LARGEST_BUDGET,
    activation_gib,
    cache_tokens_at,
    candidates,
    kv_bytes_per_token,
    overestimate,
    token_clamp,
)
from sweep.core.trial import Trial
from sweep.health.preflight import Facts, preflight
from sweep.stages import decide
from sweep.stages.eta import rollout_note
from sweep.stats.timing import rollout_share

from ..expansion import metric_rows
from .preflight import describe

ARTICLES_CASE = (80, 4096, 106_496)
"""GPU GB, hidden size and budget of S0's own example."""


def budget_query(given: Mapping[str, Any]) -> dict[str, Any]:
    """The formula's budget, what it would take, and which budgets are worth a trial."""
    clamp = token_clamp(given["gpu_gb"], given["hidden"])
    known = given.get("known_fail_above")
    most = clamp if known is None else min(clamp, known)
    factor = math.nan if known is None else overestimate(clamp, known)
    answer: dict[str, Any] = {
        "formula": clamp,
        "verdict": "FORMULA_TOO_HIGH" if factor > 1 else "OK",
        "candidates": list(candidates(most, given.get("max_num_seqs", 1))),
        "default": DEFAULT_BUDGET,
        "hard_cap": LARGEST_BUDGET,
        "seed_example_matches": token_clamp(*ARTICLES_CASE[:2]) == ARTICLES_CASE[2],
    }
    answer |= {"factor": factor} if known is not None else {}
    if "act_kib_per_token" in given:
        answer["activation_gib_at_formula"] = activation_gib(clamp, given["act_kib_per_token"])
    if {"layers", "kv_heads", "heads"} <= given.keys():
        head_size = given.get("head_dim") or given["hidden"] // given["heads"]
        answer["kv_kib_per_token"] = kv_bytes_per_token(given["layers"], given["kv_heads"], head_size) / 1024
    return answer


def budget_trials(given: Mapping[str, Any]) -> dict[str, Any]:
    """The budget that the ladder takes from measured rates, and what the formula's would leave of the cache."""
    measured = sorted(given["results"], key=lambda r: r[BUDGET])
    clamp = token_clamp(given["gpu_gb"], given["hidden"])
    pools = [(r[BUDGET], r["kv_pool_tokens"]) for r in measured if "kv_pool_tokens" in r]
    answer: dict[str, Any] = {"formula": clamp, "chosen": _climbed([(r[BUDGET], r["tok_s"]) for r in measured])}
    if pools:
        pool = cache_tokens_at(clamp, pools)
        answer |= {"predicted_pool_at_formula": pool, "ratio": clamp / pool if pool else math.inf}
        answer |= {"formula_rejected": clamp > pool}
    return answer


BUDGET = "max_num_batched_tokens"
STEPS = 12


def _climbed(rates: list[tuple[int, float]]) -> int | None:
    """The budget that a ladder over these ends with, the first of them being the configuration's own."""
    rungs = tuple(Rung(str(budget), Overrides.of({keys.MAX_BATCHED_TOKENS: budget})) for budget, _ in rates)
    stage = Stage(
        "token_budget",
        (Knob(keys.MAX_BATCHED_TOKENS, 1, 1 << 30, integer=True),),
        LadderRule((Ladder("token_budget", rungs),)),
        "rollout_throughput",
        StageBudget(len(rates), STEPS, warmup_steps=2),
    )
    base = rungs[0].settings
    rate_of = {budget: rate for budget, rate in rates}
    records: tuple[Record, ...] = ()
    while not isinstance(decision := decide(stage, Progress(base, records)), Freeze):
        for proposal in decision.proposals:  # type: ignore[union-attr]
            trial = Trial(base.merged(proposal.settings), proposal.seed, STEPS)
            rate = rate_of[trial.overrides.get(keys.MAX_BATCHED_TOKENS)]  # type: ignore[index]
            rows = [(step, {METRICS["rollout_tokens_per_s"]: float(rate)}) for step in range(1, STEPS + 1)]
            finished = Finished(Curve.from_rows(rows))
            records += (Record(trial, proposal.settings, proposal.requested, outcome=finished),)
    return decision.choice.settings.get(keys.MAX_BATCHED_TOKENS, rates[0][0])  # type: ignore[return-value]


def step_shares(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the step's time goes to, and what that means for eta."""
    curve = Curve.from_rows(metric_rows(given))
    share = rollout_share(curve.gen_seconds, curve.step_seconds)
    notes = rollout_note(share)
    return {
        "verdict": "ROLLOUT_BOUND" if notes else "OK",
        "share_gen": share,
        "advice": "; ".join(notes),
        "text": "; ".join(notes),
    }


def mini_grid(given: Mapping[str, Any]) -> dict[str, Any]:
    """The mini-batches that are valid beside a train batch that stays, and where a move lands among them."""
    sizes = valid_mini_batches(
        given["train_batch_size"],
        data_parallel=given.get("dp", 1),
        micro_batch_per_gpu=given.get("micro_per_gpu"),
        rollout_n=given.get("n", 1),
    )
    wanted = given["wanted_factor"] * given["baseline"]
    return {"valid": list(sizes), "snapped": nearest_valid(wanted, sizes, given["baseline"]), "requested": wanted}


def kl_updates(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the band controller makes of each coefficient and mean KL; nothing where the KL is not known."""
    settings = KlBandSettings.of(given.get("settings") or {})
    coefficients: list[float | None] = []
    bounds: list[bool | None] = []
    for item in given["items"]:
        kl = item["ref_kl"]
        after = None if kl is None else next_coefficient(item["coef"], kl, settings)
        coefficients.append(after)
        bounds.append(None if after is None else at_bound(after, kl, settings))
    return {"new_coef": coefficients, "at_bound": bounds}


def clip_schedule(given: Mapping[str, Any]) -> dict[str, Any]:
    """The threshold at each step, and what preflight says to the schedule."""
    decay, floor = given.get("decay", DECAY_PER_STEP), given.get("floor", FLOOR)
    config = {keys.CLIP_DECAY: decay, keys.CLIP_FLOOR: floor}
    found = preflight(config, Facts(given=frozenset(config)))
    clip = [max_norm(given["max_norm"], step, decay, floor or 0.0) for step in given["steps"]]
    severity = min((f.severity for f in found), key=lambda s: s.rank).value if found else "info"
    return describe(list(found)) | {"clip": clip, "severity": severity}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "budget_query": budget_query,
    "budget_trials": budget_trials,
    "metric_rows": step_shares,
    "metric_segments": step_shares,
    "mini_grid": mini_grid,
    "kl_updates": kl_updates,
    "clip_schedule": clip_schedule,
}
