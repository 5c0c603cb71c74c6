"""The number of sample ids given out, in checkpoints: a resumed run goes on counting.

A request's random numbers are seeded by its sample's id. Counting from the first again, steps after a resumption would
draw what the first steps drew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweep.engines.verl.checkpoint_files import step_folder

FILE = "sweep_sample_ids.json"


def save(trainer: Any) -> None:
    """In the folder of this step's checkpoint, before verl calls it whole, lies how many ids were given."""
    file = step_folder(Path(trainer.config.trainer.default_local_dir), trainer.global_steps) / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"given": trainer.ids.given}))


def load(trainer: Any) -> int:
    """How many ids the run had given that this one resumes from; 0 if it resumes from none."""
    file = trainer.resumed_from and trainer.resumed_from / FILE
    return int(json.loads(file.read_text())["given"]) if file and file.exists() else 0
