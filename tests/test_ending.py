"""How an attempt's end becomes a failure, and what of the doctor's advice belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.failure import Cause, FailureClass, Retry
from sweep.core.outcome import Failed
from sweep.core.overrides import NOTHING
from sweep.core.progress import Record
from sweep.core.trial import Trial
from sweep.ending import Ending, Run, outcome_of
from sweep.report.failures import ended_badly

TRIAL = Trial(NOTHING, 1, 5)
ADVISED = Cause(FailureClass.SOFTWARE_BUG, "a bug", ("lower this", "mend that"), Retry.NO, abort=True)


def failed(ending: Ending) -> Failed:
    outcome = outcome_of(Run(TRIAL), ending, 1.0, "log", Path("log"), lambda log: ADVISED)
    assert isinstance(outcome, Failed)
    return outcome


def test_what_the_doctor_advises_is_kept_and_shown_with_the_failure() -> None:
    found = failed(Ending(gone=True, exit_code=1))
    assert (found.failure_class, found.fix, found.retry, found.abort) == (
        FailureClass.SOFTWARE_BUG, ADVISED.fix, Retry.NO, True,
    )  # fmt: skip
    told = ended_badly(Record(TRIAL, NOTHING, NOTHING, "", found))
    assert told.endswith("; try: lower this; or mend that")


@pytest.mark.parametrize(
    ("ending", "failure_class"),
    [
        (Ending(gone=True, exit_code=-9), FailureClass.ENV_FAULT),
        (Ending(gone=True, exit_code=None), FailureClass.ENV_FAULT),
        (Ending(silent_seconds=30.0), FailureClass.HANG),
    ],
)
def test_advice_on_what_did_not_end_the_trial_is_dropped(ending: Ending, failure_class: FailureClass) -> None:
    found = failed(ending)
    assert (found.failure_class, found.fix, found.retry, found.abort) == (failure_class, (), None, False)
