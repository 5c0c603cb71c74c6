"""`draw`: the benchmark in one figure: winners against steps paid, and error rates against noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.decisions.campaigns import METHODS, PURSE_STEPS
from benchmarks.decisions.ours import OURS
from benchmarks.decisions.summary import GRID_STEPS
from benchmarks.decisions.verdicts import CVS

COLOURS = dict(
    zip(
        METHODS,
        ("#0b6e4f", "#1b998b", "#08415c", "#5c677d", "#b23a48", "#6a4c93", "#c77dff", "#f77f00", "#9e9e9e"),
        strict=True,
    )
)


def draw(summary: dict[str, Any], path: Path) -> None:
    """Write the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(17, 8))
    for axis, cv in zip(axes[0], CVS, strict=True):
        _winners(axis, cv, [m for m in summary["methods"] if m["cv"] == cv])
    axes[0][0].set_ylabel("share of campaigns within 2 % of the best")
    axes[0][3].legend(fontsize=7)
    _errors(axes[1][0], summary)
    _coverage(axes[1][1], summary)
    _power(axes[1][2], summary)
    _stops(axes[1][3], summary)
    figure.suptitle("Decisions on simulated trials with a known truth (lines: peers; points: staged search)")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _winners(axis: Any, cv: float, rows: list[dict[str, Any]]) -> None:
    steps = range(0, PURSE_STEPS + 1, GRID_STEPS)
    for row in rows:
        colour, share = COLOURS[row["method"]], row["within_2pct"]
        if row["method"] not in OURS:
            axis.plot(steps, row["within_2pct_by_steps"], color=colour, label=row["method"])
            continue
        error = [[share["value"] - share["low"]], [share["high"] - share["value"]]]
        axis.errorbar([row["steps"]], [share["value"]], yerr=error, fmt="o", color=colour, label=row["method"])
    axis.set_title(f"seed-to-seed spread {cv:.0%}")
    axis.set_xlabel("training steps paid")
    axis.set_ylim(0, 1)


def _cells(summary: dict[str, Any], effect: float) -> list[dict[str, Any]]:
    return [
        c for c in summary["verdicts"] if c["true_effect"] == effect and c["shared_noise"] == 0.0 and c["cv"] in CVS
    ]


def _errors(axis: Any, summary: dict[str, Any]) -> None:
    cells = _cells(summary, 0.0)
    spots = range(len(cells))
    axis.bar(
        [x - 0.2 for x in spots],
        [c["article_moved"]["value"] for c in cells],
        0.4,
        color="#b23a48",
        label="article's rule",
    )
    ours = [c["better"]["value"] + c["worse"]["value"] for c in cells]
    axis.bar([x + 0.2 for x in spots], ours, 0.4, color="#0b6e4f", label="verdicts")
    axis.axhline(0.05, color="black", linewidth=0.8, linestyle="--")
    _labels(axis, cells, "moves although the arms are equal")


def _coverage(axis: Any, summary: dict[str, Any]) -> None:
    for aside, (effect, colour) in enumerate(((0.0, "#0b6e4f"), (0.1, "#08415c"))):
        cells = _cells(summary, effect)
        shares = [c["covered"] for c in cells]
        error = [[s["value"] - s["low"] for s in shares], [s["high"] - s["value"] for s in shares]]
        axis.errorbar(
            [x + 0.2 * aside for x in range(len(cells))],
            [s["value"] for s in shares],
            yerr=error,
            fmt="o",
            color=colour,
            label=f"true {effect:+.0%}",
        )
    axis.axhspan(0.93, 0.97, color="#0b6e4f", alpha=0.1)
    axis.set_ylim(0.85, 1)
    _labels(axis, cells, "interval at the verdict covers the truth")


def _power(axis: Any, summary: dict[str, Any]) -> None:
    cells = _cells(summary, 0.1)
    axis.bar(range(len(cells)), [c["better"]["value"] for c in cells], 0.5, color="#08415c", label="found")
    axis.axhline(0.8, color="black", linewidth=0.8, linestyle="--")
    _labels(axis, cells, "a true +10 % is found")


def _stops(axis: Any, summary: dict[str, Any]) -> None:
    rows = [s for s in summary["early_stops"] if s["cv"] == 0.05]
    axis.bar(
        range(len(rows)), [s["stopped"]["value"] for s in rows], 0.5, color="#6a4c93", label="stopped early, CV 5 %"
    )
    axis.set_xticks(
        range(len(rows)),
        [s["true_effect"] if isinstance(s["true_effect"], str) else f"{s['true_effect']:+.0%}" for s in rows],
    )
    axis.set_title("running trials stopped")
    axis.set_xlabel("true effect")
    axis.legend(fontsize=8)


def _labels(axis: Any, cells: list[dict[str, Any]], title: str) -> None:
    axis.set_xticks(range(len(cells)), [f"{c['cv']:.0%}" for c in cells])
    axis.set_xlabel("seed-to-seed spread")
    axis.set_title(title)
    axis.legend(fontsize=8)
