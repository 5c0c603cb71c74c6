"""`write_figure`: the curves of a diagnosed run, raw beside smoothed, with bands and findings marked; PNG or HTML.

A long series is drawn as the envelope of its extremes, so that no pulse is lost to the resolution. The HTML holds
the drawing and the findings and needs nothing from elsewhere.
"""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import ConfigError
from sweep.health.diagnosis import Diagnosis
from sweep.health.evidence import Evidence
from sweep.health.finding import Finding, Severity
from sweep.health.metric_names import Quantity, Unit, find
from sweep.health.metric_table import FloatArray, Series, StepArray
from sweep.health.reading import band_of
from sweep.health.trend import smooth

PANELS = (
    Quantity.REWARD,
    Quantity.REFERENCE_KL,
    Quantity.GRAD_NORM,
    Quantity.ENTROPY,
    Quantity.LENGTH_MEAN,
    Quantity.VALUE_LOSS,
    Quantity.STEP_SECONDS,
    Quantity.GPU_RESERVED_GIB,
)
"""What is drawn, top to bottom, each where it was logged; the screen's three are drawn always."""

ALWAYS = PANELS[:3]
MOST_POINTS = 2000
"""Bins of the envelope across the width of the drawing."""

LOG_SPAN = 100.0
"""Ratio of highest to lowest from which a positive series is drawn on a logarithmic scale."""

RAW, SMOOTHED, BAND = "#9db7d5", "#1f4e8c", "#2a9d6f"
MARKS = {Severity.INFO: "#8a8a8a", Severity.WARN: "#e0a100", Severity.ERROR: "#d1600a", Severity.CRITICAL: "#b3261e"}


def write_figure(path: Path, evidence: Evidence, diagnosis: Diagnosis, title: str) -> None:
    """Write the figure of one run; the suffix chooses PNG or HTML.

    Raises:
        ConfigError: another suffix, or the file cannot be written.
    """
    figure = draw(evidence, diagnosis, title)
    try:
        if path.suffix.casefold() == ".png":
            figure.savefig(path, dpi=120, format="png")
        elif path.suffix.casefold() in (".html", ".htm"):
            path.write_text(as_html(figure, diagnosis, title), encoding="utf-8")
        else:
            raise ConfigError(f"a figure is written as .png or .html, got {path.name}")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def draw(evidence: Evidence, diagnosis: Diagnosis, title: str) -> Any:
    """A matplotlib figure with one panel a quantity over the run's steps."""
    from matplotlib.figure import Figure

    panels = _panels(evidence, diagnosis)
    figure = Figure(figsize=(11, 2.1 * len(panels) + 0.8), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        axis.set_title(panel.title, loc="left", fontsize=9)
        if panel.series is None:
            _blank(axis)
            continue
        _curves(axis, panel.series, evidence.limits.smoothing)
        if panel.band is not None:
            axis.axhspan(*panel.band, color=BAND, alpha=0.10, linewidth=0)
        mine = [f for f in diagnosis.findings if f.metric == panel.series.name]
        _mark(axis, [f for f in mine if f.severity is not Severity.INFO])
    lines: Any = next((a.get_legend_handles_labels() for a in axes if a.lines), ([], []))
    figure.legend(*lines, loc="upper right", ncols=2, fontsize=7, frameon=False)
    axes[-1].set_xlabel("step")
    figure.suptitle(f"{title}: {diagnosis.verdict} ({diagnosis.severity.value})", x=0.01, ha="left", fontsize=11)
    return figure


@dataclass(frozen=True, slots=True, eq=False)
class _Panel:
    """What one panel shows; None for a quantity of the screen that was not logged."""

    title: str
    series: Series | None
    band: tuple[float, float] | None = None


def _panels(evidence: Evidence, diagnosis: Diagnosis) -> list[_Panel]:
    """The fixed quantities that were logged, the screen's in any case, then other metrics that a finding is about."""
    panels = []
    for quantity in PANELS:
        found = find(evidence.table, quantity, evidence.facts.units)
        if found is not None:
            unit = "" if found.unit is Unit.PLAIN else f" ({found.unit.value})"
            panels.append(_Panel(found.name + unit, found.series, band_of(evidence, quantity)))
        elif quantity in ALWAYS:
            panels.append(_Panel(quantity.value, None))
    drawn = {p.series.name for p in panels if p.series is not None}
    wanted = dict.fromkeys(f.metric for f in diagnosis.findings if f.severity is not Severity.INFO)
    others = (evidence.table.series(name) for name in wanted if name not in drawn)
    return panels + [_Panel(s.name, s) for s in others if s is not None]


def envelope(series: Series) -> tuple[StepArray, FloatArray]:
    """Steps and values to draw: all of a short series, lowest and highest of each bin of a long one."""
    finite = np.isfinite(series.values)
    steps, values = series.steps[finite], series.values[finite]
    if len(values) <= 2 * MOST_POINTS:
        return steps, values
    kept: list[int] = []
    for part in np.array_split(np.arange(len(values)), MOST_POINTS):
        kept += sorted({int(part[values[part].argmin()]), int(part[values[part].argmax()])})
    return steps[kept], values[kept]


def as_html(figure: Any, diagnosis: Diagnosis, title: str) -> str:
    """One self-contained page: drawing, then a table of findings."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    drawing = buffer.getvalue()
    rows = "".join(_row(f) for f in diagnosis.findings) or "<tr><td colspan=5>nothing found</td></tr>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem;max-width:72rem}svg{width:100%;height:auto}"
        "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:.4rem;text-align:left;"
        "vertical-align:top}</style></head><body>"
        f"<h1>{html.escape(title)}</h1><p><b>{diagnosis.verdict}</b> ({diagnosis.severity.value}), "
        f"{diagnosis.steps} steps</p>{drawing[drawing.index('<svg') :]}"
        "<table><tr><th>severity</th><th>finding</th><th>where</th><th>seen</th><th>what to do</th></tr>"
        f"{rows}</table></body></html>\n"
    )


def _row(finding: Finding) -> str:
    moves = "; ".join(str(move) for move in finding.direction)
    cells = (
        finding.severity.value,
        finding.code.name,
        f"{finding.metric} {finding.steps}".strip(),
        f"{finding.seen} (confidence {finding.confidence.value})",
        f"{finding.advice}. {moves}".rstrip(". "),
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _curves(axis: Any, series: Series, weight: float) -> None:
    """Raw and smoothed, and a dotted line where the series first is not finite."""
    steps, values = envelope(series)
    axis.plot(steps, values, color=RAW, linewidth=0.8, label="raw")
    calm = Series(series.name, series.steps, smooth(series.values, weight))
    axis.plot(*envelope(calm), color=SMOOTHED, linewidth=1.6, label=f"smoothed {weight:g}")
    lowest = float(values.min()) if len(values) else math.nan
    if lowest > 0 and float(values.max()) > LOG_SPAN * lowest:
        axis.set_yscale("log")
    if series.first_bad_step is not None:
        axis.axvline(series.first_bad_step, color=MARKS[Severity.CRITICAL], linestyle=":", linewidth=1)
    axis.grid(alpha=0.2)


def _mark(axis: Any, findings: Sequence[Finding]) -> None:
    """A shaded stretch with the code's name at its start; names are stacked so that they can be read."""
    for place, finding in enumerate(findings):
        if finding.first_step is None:
            continue
        color = MARKS[finding.severity]
        axis.axvspan(finding.first_step, finding.last_step or finding.first_step, color=color, alpha=0.12, linewidth=0)
        axis.axvline(finding.first_step, color=color, linewidth=1)
        axis.annotate(
            finding.code.name,
            (finding.first_step, 0.97 - 0.14 * place),
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color=color,
            va="top",
            xytext=(3, 0),
            textcoords="offset points",
        )


def _blank(axis: Any) -> None:
    axis.text(0.5, 0.5, "not logged", ha="center", va="center", transform=axis.transAxes, color="#8a8a8a")
    axis.set_yticks([])
