"""The figure: what is drawn, that no pulse is lost, that the page stands alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sweep.errors import ConfigError
from sweep.health.diagnosis import diagnose
from sweep.health.evidence import Evidence
from sweep.health.metric_table import MetricTable, Series
from sweep.report.diagnosis_figure import MOST_POINTS, draw, envelope, write_figure


def _run() -> Evidence:
    rows = [
        (
            n,
            {
                "critic/score/mean": 0.3 + 0.001 * n if n < 250 else 0.05,
                "actor/grad_norm": 30.0 if n == 100 else 0.4,
                "response_length/clip_ratio": 0.95 if n > 200 else 0.02,
            },
        )
        for n in range(1, 301)
    ]
    return Evidence.of(MetricTable.from_rows(rows))


def test_the_screen_is_always_drawn_and_findings_are_named_where_they_are() -> None:
    evidence = _run()
    figure = draw(evidence, diagnose(evidence.table), "run <1>")
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == [
        "critic/score/mean",
        "KL of the policy to its reference",
        "actor/grad_norm",
        "response_length/clip_ratio",
    ]
    named = {t.get_text(): axis.get_title(loc="left") for axis in figure.axes for t in axis.texts}
    assert named["REWARD_DROP"] == "critic/score/mean"
    assert named["GRAD_SPIKE"] == "actor/grad_norm"
    assert named["LENGTH_SATURATED"] == "response_length/clip_ratio"
    assert named["not logged"].startswith("KL")


def test_raw_and_smoothed_are_drawn_beside_each_other() -> None:
    evidence = _run()
    axis = draw(evidence, diagnose(evidence.table), "x").axes[2]
    raw, calm = (line.get_ydata() for line in axis.lines[:2])
    assert max(raw) == 30.0 and max(calm) < 2.0


@pytest.mark.parametrize("points", [100, 2 * MOST_POINTS, 50_000])
def test_no_pulse_is_lost_in_a_long_series(points: int) -> None:
    values = np.zeros(points)
    values[points // 3] = 7.0
    values[points // 2] = -3.0
    values[points // 5] = math.nan
    steps, drawn = envelope(Series("x", np.arange(points), values))
    assert drawn.max() == 7.0 and drawn.min() == -3.0 and len(drawn) <= 2 * MOST_POINTS
    assert (np.diff(steps) > 0).all()


def test_the_page_stands_alone_and_escapes_its_title(tmp_path: Path) -> None:
    evidence = _run()
    path = tmp_path / "out.html"
    write_figure(path, evidence, diagnose(evidence.table), "run <1>")
    page = path.read_text()
    assert "<svg" in page and "run &lt;1&gt;" in page and "REWARD_DROP" in page
    assert "<script" not in page and 'src="' not in page and "<link" not in page


def test_an_empty_run_can_be_drawn(tmp_path: Path) -> None:
    empty = Evidence.of(MetricTable.from_rows([]))
    write_figure(tmp_path / "out.png", empty, diagnose(empty.table), "nothing")
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    evidence = _run()
    with pytest.raises(ConfigError, match="cannot write"):
        write_figure(tmp_path / "none" / "out.png", evidence, diagnose(evidence.table), "x")
