"""Step times that a log can hold and a clock cannot."""

from __future__ import annotations

from sweep.health.diagnosis import diagnose
from sweep.health.metric_table import MetricTable


def test_steps_that_took_no_time_at_first_are_no_jump_and_no_division_by_zero():
    rows = [(i, {"timing_s/step": 0.0 if i < 30 else 5.0, "critic/score/mean": 0.01 * i}) for i in range(1, 61)]
    assert "STEP_TIME_JUMP" not in {f.code.value for f in diagnose(MetricTable.from_rows(rows)).findings}
