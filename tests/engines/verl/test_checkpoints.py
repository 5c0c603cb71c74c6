"""Which of its own checkpoints a trial goes on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sweep.engines.verl.checkpoints import latest_whole, reported_steps


def trained(
    folder: Path, *, reported: int = 10, saved: tuple[int, ...] = (4, 8), last_whole: str | None = None
) -> Path:
    """A trial's folder after so many reported steps."""
    rows = [
        json.dumps({"version": 1, "step": s, "data": {"critic/score/mean": s / 10}}) for s in range(1, reported + 1)
    ]
    folder.joinpath("metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    for step in saved:
        for part in ("actor", "critic"):
            place = folder / "checkpoints" / f"global_step_{step}" / part
            place.mkdir(parents=True)
            (place / "model.pt").write_text("weights")
        (folder / "checkpoints" / f"global_step_{step}" / "data.pt").write_text("order")
    folder.joinpath("checkpoints").mkdir(exist_ok=True)
    said = str(max(saved, default=0)) if last_whole is None else last_whole
    folder.joinpath("checkpoints", "latest_checkpointed_iteration.txt").write_text(said)
    return folder


def step(folder: Path) -> int:
    found = latest_whole(folder)
    assert found is None or found.path == str(folder / "checkpoints" / f"global_step_{found.step}")
    return found.step if found else 0


@pytest.mark.parametrize(("reported", "expected"), [(10, 8), (8, 8), (7, 4), (4, 4), (3, 0), (0, 0)])
def test_it_is_the_last_one_whose_steps_were_all_reported(tmp_path: Path, reported: int, expected: int) -> None:
    assert step(trained(tmp_path, reported=reported)) == expected


@pytest.mark.parametrize(("said", "expected"), [("8", 8), ("4", 4), ("", 0), ("x", 0)])
def test_what_verl_has_not_called_whole_is_not_used(tmp_path: Path, said: str, expected: int) -> None:
    assert step(trained(tmp_path, last_whole=said)) == expected


@pytest.mark.parametrize("part", ["actor", "data.pt", "critic/model.pt"])
def test_one_that_verl_is_deleting_is_not_used(tmp_path: Path, part: str) -> None:
    path = trained(tmp_path) / "checkpoints" / "global_step_8" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert step(tmp_path) == 4


def test_a_trial_that_saved_nothing_or_never_ran_has_none(tmp_path: Path) -> None:
    assert latest_whole(tmp_path) is None
    assert step(trained(tmp_path, saved=())) == 0


def test_reported_steps_end_at_a_gap_and_at_a_half_written_line(tmp_path: Path) -> None:
    file = trained(tmp_path, reported=5).joinpath("metrics.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:3], lines[4]]))
    assert list(reported_steps(tmp_path)) == [1, 2, 3]
    file.write_text("".join(lines[:4]) + lines[4][:12])
    assert reported_steps(tmp_path)[4] == {"critic/score/mean": 0.4}
    assert list(reported_steps(tmp_path)) == [1, 2, 3, 4]
