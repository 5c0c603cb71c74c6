"""`run_length`: whether the planned run is as long as a trial and as the windows that will judge it.

verl ends a run silently, exit code 0, when its epochs are used up, whatever total was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweep.core import verl_keys as keys
from sweep.health.code import Code
from sweep.health.evidence import Evidence, RunFacts
from sweep.health.finding import Finding, Move, Severity, Way
from sweep.health.limits import DEFAULT, Limits

DEFAULT_EPOCHS = 30
"""Source: verl 0.9.1 trainer/config/ppo_trainer.yaml."""


def planned_steps(dataset_rows: int, train_batch: int, epochs: int, total_steps: int | None = None) -> int:
    """Steps that verl will run: whole batches an epoch, times epochs, and no more than a total that is set.

    Source: verl 0.9.1 v1/trainer_base.py (drop_last, end of the epochs); verl#4334.
    """
    by_epochs = dataset_rows // max(train_batch, 1) * epochs
    return by_epochs if total_steps is None else min(by_epochs, total_steps)


def planned_length(evidence: Evidence) -> tuple[Finding, ...]:
    """`run_length` of a run whose data and wanted steps are known."""
    facts = evidence.facts
    if facts.dataset_rows is None or facts.wanted_steps is None:
        return ()
    return run_length(facts.config, facts.dataset_rows, facts.wanted_steps, evidence.limits)


def run_length(
    settings: Mapping[str, object], dataset_rows: int, wanted_steps: int, limits: Limits = DEFAULT
) -> tuple[Finding, ...]:
    """A warning if the settings give fewer steps than wanted, with the epochs that would do."""
    facts = RunFacts(config=settings)
    batch = int(facts.number(keys.TRAIN_BATCH) or keys.DEFAULTS[keys.TRAIN_BATCH])
    epochs = int(facts.number(keys.TOTAL_EPOCHS) or DEFAULT_EPOCHS)
    total = facts.number(keys.TOTAL_STEPS)
    steps = planned_steps(dataset_rows, batch, epochs, None if total is None else int(total))
    if steps >= wanted_steps:
        return ()
    an_epoch = dataset_rows // batch
    needed = math.ceil(wanted_steps / an_epoch) if an_epoch else None
    blind = f"; too short even for the plateau window of {limits.plateau_steps}" if steps < limits.plateau_steps else ""
    epochs_text = f"at least {needed}" if needed else "the batch is larger than the dataset"
    return (
        Finding(
            code=Code.WINDOW_EXCEEDS_RUN,
            severity=Severity.WARN,
            metric="step",
            first_step=None,
            last_step=steps,
            seen=f"{dataset_rows} rows in batches of {batch} give {an_epoch} steps an epoch, {steps} in all, "
            f"where {wanted_steps} are wanted{blind}",
            advice="verl would stop early with exit code 0; allow more epochs, and set the total to the trial's steps",
            direction=(
                Move(Way.RAISE, keys.TOTAL_EPOCHS, epochs_text),
                Move(Way.SET, keys.TOTAL_STEPS, str(wanted_steps)),
            ),
            source="METHOD section 9; verl 0.9.1 v1/trainer_base.py",
            figures=(("computed_total_steps", float(steps)), ("steps_per_epoch", float(an_epoch)))
            + ((("epochs_needed", float(needed)),) if needed else ()),
        ),
    )
