"""`summarize`: all counts of a run as plain JSON types; `headline`: its last line; `table`: for people."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.decisions.campaigns import METHODS, PURSE_STEPS, Campaign
from benchmarks.decisions.ours import OURS
from benchmarks.decisions.shares import Share
from benchmarks.decisions.verdicts import CVS

NEAR_BEST = 0.98
GRID_STEPS = 250
RESAMPLES = 400
KIND_CV = 0.05


def summarize(
    cells: Sequence[dict[str, Any]], stops: Sequence[dict[str, Any]], campaigns: Sequence[Campaign]
) -> dict[str, Any]:
    """Verdicts, early stops, methods by noise and by kind of surface, and the ratio of steps to the best peer."""
    return {
        "verdicts": list(cells),
        "early_stops": list(stops),
        "methods": [_row(m, cv, "all", _of(campaigns, m, cv)) for m in METHODS for cv in CVS],
        "methods_by_kind": [
            _row(m, cv, kind, _of(campaigns, m, cv, kind))
            for m in METHODS
            for cv in CVS
            for kind in sorted({c.kind for c in campaigns})
        ],
        "step_ratio": [_step_ratio(ours, campaigns) for ours in OURS],
        "step_ratio_without_trap": [_step_ratio(ours, [c for c in campaigns if c.kind != "trap"]) for ours in OURS],
    }


def headline(summary: dict[str, Any], method: str) -> dict[str, Any]:
    """The four numbers that the benchmark is judged by: the worst cell of each."""
    alone = [c for c in summary["verdicts"] if c["shared_noise"] == 0.0]
    moved = [c["better"]["value"] + c["worse"]["value"] for c in alone if c["true_effect"] == 0.0]
    covered = [c["covered"]["value"] for c in alone]
    found = [c["better"]["value"] for c in alone if c["true_effect"] == 0.1 and c["cv"] <= 0.05]
    ratio = next(r for r in summary["step_ratio"] if r["method"] == method)
    return {
        "wrong_move_rate": round(max(moved), 4),
        "coverage": max(covered, key=lambda c: abs(c - 0.95)),
        "power_10pct": min(found),
        "step_ratio_to_best_peer": ratio["by_share_within_2pct"]["ratio"],
        "step_ratio_is_upper_bound": ratio["by_share_within_2pct"]["upper_bound"],
        "step_ratio_by_mean_regret": ratio["by_mean_regret"]["ratio"],
        "method": method,
        "winner_within_2pct": ratio["within_2pct"]["value"],
        "campaigns_a_method_and_noise_level": summary["methods"][0]["campaigns"],
    }


def table(summary: dict[str, Any]) -> str:
    """Markdown tables of the summary."""
    parts = [f(summary) for f in (_verdict_rows, _stop_rows, _method_rows, _kind_rows, _ratio_rows)]
    return "\n\n".join("\n".join(part) for part in parts)


def _verdict_rows(summary: dict[str, Any]) -> list[str]:
    names = ("true effect", "CV", "shared", "better", "worse", "interval covers", "article moves", "seeds")
    return _rows(
        names,
        [
            (
                f"{c['true_effect']:+.0%}",
                f"{c['cv']:.0%}",
                f"{c['shared_noise']:.0%}",
                _percent(c["better"]),
                _percent(c["worse"]),
                _percent(c["covered"]),
                _percent(c["article_moved"]),
                f"{c['mean_seeds']:.1f}",
            )
            for c in summary["verdicts"]
        ],
    )


def _stop_rows(summary: dict[str, Any]) -> list[str]:
    return _rows(
        ("running trial's true effect", "CV", "stopped", "steps run"),
        [
            (
                s["true_effect"] if isinstance(s["true_effect"], str) else f"{s['true_effect']:+.0%}",
                f"{s['cv']:.0%}",
                _percent(s["stopped"]),
                f"{s['steps_run']:.0%}",
            )
            for s in summary["early_stops"]
        ],
    )


def _method_rows(summary: dict[str, Any]) -> list[str]:
    return _rows(
        ("method", "CV", "within 2 % of best", "within 5 %", "mean regret", "mean steps"),
        [
            (
                m["method"],
                f"{m['cv']:.0%}",
                _percent(m["within_2pct"]),
                _percent(m["within_5pct"]),
                f"{m['regret']:.1%}",
                f"{m['steps']:,.0f}",
            )
            for m in summary["methods"]
        ],
    )


def _kind_rows(summary: dict[str, Any]) -> list[str]:
    seen = {(m["method"], m["kind"]): m for m in summary["methods_by_kind"] if m["cv"] == KIND_CV}
    kinds = sorted({kind for _, kind in seen})
    return _rows(
        (f"mean regret at CV {KIND_CV:.0%}", *kinds),
        [(method, *(f"{seen[method, k]['regret']:.1%}" for k in kinds)) for method in METHODS],
    )


def _ratio_rows(summary: dict[str, Any]) -> list[str]:
    names = ("steps over the best peer's", "as often within 2 %", "as small a mean regret")
    found = [(r["method"], r) for r in summary["step_ratio"]]
    found += [(f"{r['method']}, without trap", r) for r in summary["step_ratio_without_trap"]]
    return _rows(names, [(n, _bounded(r["by_share_within_2pct"]), _bounded(r["by_mean_regret"])) for n, r in found])


def _bounded(ratio: dict[str, Any]) -> str:
    if ratio["ratio"] is None:
        return "never within 2 %"
    at_most = "at most " if ratio["upper_bound"] else ""
    return f"{at_most}{ratio['ratio']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"


def _rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)]


def _of(campaigns: Sequence[Campaign], method: str, cv: float, kind: str | None = None) -> list[Campaign]:
    return [c for c in campaigns if c.method == method and c.cv == cv and kind in (None, c.kind)]


def _row(method: str, cv: float, kind: str, seen: Sequence[Campaign]) -> dict[str, Any]:
    return {
        "method": method,
        "cv": cv,
        "kind": kind,
        "campaigns": len(seen),
        "within_2pct": Share.of(c.quality >= NEAR_BEST for c in seen).to_json(),
        "within_5pct": Share.of(c.quality >= 0.95 for c in seen).to_json(),
        "regret": round(1 - fmean(c.quality for c in seen), 4),
        "steps": round(fmean(c.steps for c in seen), 1),
        "within_2pct_by_steps": _by_steps(seen),
    }


def _by_steps(seen: Sequence[Campaign]) -> list[float]:
    """Share within 2 % after every GRID_STEPS steps."""
    grid = range(0, PURSE_STEPS + 1, GRID_STEPS)
    return [round(fmean(c.quality_at(at) >= NEAR_BEST for c in seen), 4) for at in grid]


def _step_ratio(method: str, campaigns: Sequence[Campaign]) -> dict[str, Any]:
    """Mean steps of a method over the steps after which the best peer is as good, over all worlds and noise levels.

    As good: within 2 % of the best as often, or with as small a mean regret. None if the method never is within 2 %.
    A peer that is not as good within its purse counts with the whole purse: the ratio is then an upper bound.
    """
    worlds: dict[tuple[str, float, int], dict[str, Campaign]] = defaultdict(dict)
    for c in campaigns:
        worlds[c.kind, c.cv, c.number][c.method] = c
    cases = list(worlds.values())
    goodness = {m: {name: _goodness([c[m] for c in cases], m, how) for name, how in HOW.items()} for m in METHODS}
    steps = np.array([c[method].steps for c in cases], dtype=float)
    return {
        "method": method,
        "within_2pct": Share.of(c[method].quality >= NEAR_BEST for c in cases).to_json(),
        **{name: _ratio(steps, method, {m: goodness[m][name] for m in METHODS}) for name in HOW},
    }


HOW: dict[str, Callable[[float], float]] = {
    "by_share_within_2pct": lambda quality: float(quality >= NEAR_BEST),
    "by_mean_regret": lambda quality: quality,
}


def _goodness(seen: Sequence[Campaign], method: str, how: Callable[[float], float]) -> Any:
    """Goodness of every campaign at every grid point, shape (campaigns, grid); of ours only at their end."""
    if method in OURS:
        return np.array([[how(c.quality)] for c in seen])
    return np.array([[how(c.quality_at(at)) for at in range(0, PURSE_STEPS + 1, GRID_STEPS)] for c in seen])


def _ratio(steps: Any, method: str, goodness: Mapping[str, Any]) -> dict[str, Any]:
    """The ratio with its interval by drawing worlds anew."""
    value, bound = _ratio_over(steps, method, goodness, np.arange(len(steps)))
    rng = np.random.default_rng(0)
    draws = (rng.integers(len(steps), size=len(steps)) for _ in range(RESAMPLES))
    drawn = [_ratio_over(steps, method, goodness, chosen)[0] for chosen in draws]
    low, high = np.nanquantile(drawn, [0.025, 0.975]) if not math.isnan(value) else (math.nan, math.nan)
    return {"ratio": _rounded(value), "low": _rounded(low), "high": _rounded(high), "upper_bound": bound}


def _ratio_over(steps: Any, method: str, goodness: Mapping[str, Any], chosen: Any) -> tuple[float, bool]:
    ours = float(goodness[method][chosen].mean())
    if ours == 0:
        return math.nan, False
    needed = math.inf
    for peer in (m for m in METHODS if m not in OURS):
        reached = np.flatnonzero(goodness[peer][chosen].mean(axis=0) >= ours)
        if len(reached):
            needed = min(needed, max(1, int(reached[0])) * GRID_STEPS)
    return float(steps[chosen].mean()) / min(needed, PURSE_STEPS), math.isinf(needed)


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


def _percent(share: dict[str, float]) -> str:
    return f"{share['value']:.1%} ({share['low']:.1%}-{share['high']:.1%})"
