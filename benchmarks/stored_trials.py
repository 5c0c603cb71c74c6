"""`finished_trials`: what a campaign's folder holds of trials that reached their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sweep.adapters.storage import open_storage
from sweep.adapters.trial_attributes import Stored
from sweep.core.outcome import Finished
from sweep.core.plan import storage_file
from sweep.core.progress import Record


def finished_trials(folder: Path) -> Iterator[tuple[str, Record, Finished]]:
    """Stage, record and outcome of each, stage by stage; a trial that several stages know comes once for each."""
    storage = open_storage(storage_file(folder))
    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id):
            stored = Stored.read(trial.user_attrs)
            if stored is not None and isinstance(stored.record.outcome, Finished):
                yield study.study_name.rpartition("/")[2], stored.record, stored.record.outcome
