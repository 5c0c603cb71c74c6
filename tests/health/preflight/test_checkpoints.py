"""Checkpoint folders, resuming, disk."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, ModelFacts, Severity, check_together

from .sound import SOUND, codes, only

FOLDER = str(SOUND[keys.CHECKPOINT_DIR])


def test_trials_that_share_a_folder_are_an_error_that_names_them() -> None:
    configs = {"a": SOUND, "b": {**SOUND, keys.KL_COEF: 0.002}, "c": {**SOUND, keys.CHECKPOINT_DIR: "elsewhere"}}
    (finding,) = check_together(configs)
    assert (finding.code, finding.severity, finding.computed["trials"]) == (
        "SHARED_CHECKPOINT_DIR",
        Severity.ERROR,
        ["a", "b"],
    )


def test_trials_with_folders_of_their_own_are_fine() -> None:
    configs = {name: {**SOUND, keys.CHECKPOINT_DIR: f"runs/{name}"} for name in "abc"}
    assert list(check_together(configs)) == []


def test_an_old_checkpoint_would_be_resumed_silently() -> None:
    old = Facts(existing_checkpoint="global_step_40")
    assert only("RESUMES_EXISTING", {}, old).nearest == (f"{keys.RESUME_MODE}=disable",)
    assert "RESUMES_EXISTING" not in codes({keys.RESUME_MODE: "disable"}, old)


@pytest.mark.parametrize(("path", "named"), [(None, True), ("/ck/actor", True), ("/ck/global_step_50", False)])
def test_a_path_to_resume_from_names_a_step(path: str | None, named: bool) -> None:
    changes = {keys.RESUME_MODE: "resume_path", keys.RESUME_FROM: path}
    assert ("RESUME_PATH_INVALID" in codes(changes)) == named


def test_an_unknown_mode_is_named() -> None:
    assert "UNKNOWN_OPTION" in codes({keys.RESUME_MODE: "never"})


def test_keeping_every_checkpoint_is_remarked_on_only_where_some_are_saved() -> None:
    assert "KEEPS_ALL_CHECKPOINTS" in codes({keys.SAVE_FREQ: 10})
    assert "KEEPS_ALL_CHECKPOINTS" not in codes({keys.SAVE_FREQ: 10, keys.KEEP_ACTOR: 3})
    assert "KEEPS_ALL_CHECKPOINTS" not in codes({keys.SAVE_FREQ: -1})


@pytest.mark.parametrize(("free_gib", "named"), [(89.0, True), (90.0, False)])
def test_a_disk_that_cannot_hold_the_checkpoints_is_an_error(free_gib: float, named: bool) -> None:
    changes = {keys.SAVE_FREQ: 100, keys.KEEP_ACTOR: 3}
    facts = Facts(free_disk_gib=free_gib, model=ModelFacts(parameters=1e9), trial_steps=500)
    assert ("DISK_SHORT" in codes(changes, facts)) == named


def test_fewer_checkpoints_are_counted_than_are_kept_when_the_trial_is_short() -> None:
    facts = Facts(free_disk_gib=1.0, model=ModelFacts(parameters=1e9), trial_steps=200)
    assert only("DISK_SHORT", {keys.SAVE_FREQ: 100, keys.KEEP_ACTOR: 3}, facts).computed["count"] == 2
