"""Equal seeds, equal order: running numbers for the samples' ids, and batches in the order of the data.

verl names samples by random UUIDs and takes them as they finish. Ids decide the order of validation sums and, with
it, the last digits of metrics; the order of a batch decides which samples share a mini-batch.

Source: verl trainer/ppo/v1/trainer_base.py, `_fetch_one_gen_batch` and `_validate`; replay_buffer.py.
"""

from __future__ import annotations

from typing import Any


class RunningIds:
    """Takes the place of the module `uuid` in verl's trainer: ids count up, so they sort in the order of the data."""

    def __init__(self) -> None:
        self.restart()

    def restart(self, given: int = 0) -> None:
        """So many ids count as given; the next is the first again unless a run goes on."""
        self.given = given

    def uuid4(self) -> str:
        """The next id, of ten digits and without an underscore, which verl uses as separator."""
        self.given += 1
        return f"{self.given:010d}"


def sort_key(key: str) -> tuple[str, int, int]:
    """Orders a batch's keys `id_session_index` by sample, then session, then output; padding comes last."""
    parts = key.rsplit("_", 2)
    if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
        return parts[0], int(parts[1]), int(parts[2])
    return "~" + key, 0, 0


def in_data_order(batch: Any) -> Any:
    """The batch with its samples in the order of the data, changed in place."""
    batch.reorder(sorted(range(len(batch.keys)), key=lambda i: sort_key(batch.keys[i])))
    return batch
