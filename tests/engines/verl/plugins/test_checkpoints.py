"""The policy on folders as verl writes them: marks, damage, deletion and where a run resumes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from sweep.engines.verl.checkpoint_files import MARK, TRACKER, found, newest_complete
from sweep.engines.verl.plugins import checkpoints, id_state, kl_state
from sweep.engines.verl.plugins.checkpoints import BEST, Checkpoints

PARTS = ("actor/model.pt", "critic/model.pt", "data.pt")


def write(folder: Path, step: int, parts: tuple[str, ...] = PARTS, tracked: bool = True) -> Path:
    """A checkpoint as verl writes it."""
    place = folder / f"global_step_{step}"
    for part in parts:
        (place / part).parent.mkdir(parents=True, exist_ok=True)
        (place / part).write_bytes(b"x" * (10 + step))
    if tracked:
        (folder / TRACKER).write_text(str(step))
    return place


def save(policy: Checkpoints, folder: Path, step: int, reward: float, every: int = 10) -> dict[str, float]:
    """The steps of an interval, then a save; the metrics of the last step."""
    for _ in range(every - 1):
        assert policy.judged({"critic/score/mean": reward}) == {}
    policy.begins(step)
    write(folder, step)
    policy.saved(step)
    return policy.judged({"critic/score/mean": reward})


def steps(folder: Path) -> list[int]:
    return sorted(int(p.name.rpartition("_")[2]) for p in folder.glob("global_step_*"))


def test_the_best_by_mean_reward_and_the_last_three_are_left(tmp_path: Path) -> None:
    policy = Checkpoints(tmp_path, keep_last=3, best_gain=0.005)
    rewards = {10: 0.5, 20: 0.62, 30: 0.621, 40: 0.6, 50: 0.6, 60: 0.6}
    told = [save(policy, tmp_path, step, reward) for step, reward in rewards.items()]
    assert [t["sweep/best_checkpoint_step"] for t in told] == [10, 20, 20, 20, 20, 20]
    assert [t["sweep/checkpoints_kept"] for t in told] == [1, 2, 3, 3, 4, 4]
    assert steps(tmp_path) == [20, 40, 50, 60]
    assert json.loads((tmp_path / BEST).read_text())["step"] == 20


def test_a_later_life_of_the_run_knows_the_best(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path, 3, 0.005), tmp_path, 10, 0.9)
    assert save(Checkpoints(tmp_path, 3, 0.005), tmp_path, 20, 0.5)["sweep/best_checkpoint_step"] == 10


@pytest.mark.parametrize("damage", ["shorter", "gone", "unfinished", "no json"])
def test_a_damaged_checkpoint_is_not_complete(tmp_path: Path, damage: str) -> None:
    policy = Checkpoints(tmp_path, 3, 0.005)
    for step in (10, 20):
        save(policy, tmp_path, step, 0.5)
    assert newest_complete(tmp_path) == tmp_path / "global_step_20"
    last = tmp_path / "global_step_20"
    if damage == "shorter":
        (last / "actor/model.pt").write_bytes(b"x")
    elif damage == "gone":
        (last / "critic/model.pt").unlink()
    elif damage == "unfinished":
        policy.begins(20)
    else:
        (last / MARK).write_text("{")
    assert found(tmp_path) == {10: True, 20: False}
    assert newest_complete(tmp_path) == tmp_path / "global_step_10"


def test_checkpoints_of_verl_alone_are_complete_up_to_its_tracker(tmp_path: Path) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20)
    write(tmp_path, 30, parts=("actor/model.pt",), tracked=False)
    assert found(tmp_path) == {10: True, 20: True, 30: False}


def test_what_is_half_deleted_does_not_look_like_a_checkpoint(tmp_path: Path) -> None:
    place = write(tmp_path, 10)
    checkpoints.remove(place)
    assert list(tmp_path.glob("*global_step*")) == []
    (tmp_path / "deleted_global_step_20").mkdir()
    assert found(tmp_path) == {}


def config(folder: Path, mode: str, path: Path | None = None):  # type: ignore[no-untyped-def]
    trainer = {
        "default_local_dir": str(folder),
        "resume_mode": mode,
        "resume_from_path": None if path is None else str(path),
        "max_actor_ckpt_to_keep": 7,
        "max_critic_ckpt_to_keep": None,
    }
    return OmegaConf.create({"trainer": trainer})


def test_an_automatic_resume_passes_over_what_is_damaged(tmp_path: Path) -> None:
    policy = Checkpoints(tmp_path, 3, 0.005)
    for step in (10, 20):
        save(policy, tmp_path, step, 0.5)
    (tmp_path / "global_step_20/data.pt").unlink()
    asked = config(tmp_path, "auto")
    with checkpoints.only_complete_ones(asked) as loaded:
        assert asked.trainer.resume_mode == "resume_path"
        assert loaded == tmp_path / "global_step_10"
        assert asked.trainer.resume_from_path == str(tmp_path / "global_step_10")
    assert (asked.trainer.resume_mode, asked.trainer.resume_from_path) == ("auto", None)


def test_with_nothing_complete_a_run_begins_anew(tmp_path: Path) -> None:
    Checkpoints(tmp_path, 3, 0.005).begins(10)
    (tmp_path / TRACKER).write_text("garbage")
    asked = config(tmp_path, "auto")
    with checkpoints.only_complete_ones(asked) as loaded:
        assert asked.trainer.resume_mode == "disable" and loaded is None


def test_a_damaged_checkpoint_that_was_asked_for_is_refused_with_the_newest_that_works(tmp_path: Path) -> None:
    policy = Checkpoints(tmp_path, 3, 0.005)
    for step in (10, 20):
        save(policy, tmp_path, step, 0.5)
    (tmp_path / "global_step_20/data.pt").unlink()
    with (
        pytest.raises(ValueError, match=r"global_step_20 was not written to its end.*global_step_10"),
        checkpoints.only_complete_ones(config(tmp_path, "resume_path", tmp_path / "global_step_20")),
    ):
        pass
    with checkpoints.only_complete_ones(config(tmp_path, "resume_path", tmp_path / "global_step_10")):
        pass


class MovingController:
    """A KL controller in the reward that moves."""

    value = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


def a_trainer(folder: Path, step: int, coefficient: float, ids: int, resumed_from: Path | None = None):  # type: ignore[no-untyped-def]
    controller = MovingController()
    controller.value = coefficient
    return SimpleNamespace(
        config=config(folder, "auto"),
        global_steps=step,
        resumed_from=resumed_from,
        kl_ctrl_in_reward=controller,
        kl_loss_band=SimpleNamespace(controller=None),
        ids=SimpleNamespace(given=ids),
    )


def test_controller_and_ids_are_those_of_the_checkpoint_that_was_loaded_wherever_it_lies(tmp_path: Path) -> None:
    for folder, coefficient, ids in ((tmp_path / "other", 0.25, 64), (tmp_path / "own", 0.5, 32)):
        saved = a_trainer(folder, 10, coefficient, ids)
        id_state.save(saved)
        kl_state.save(saved)
    resumed = a_trainer(tmp_path / "own", 10, 1.0, 0, tmp_path / "other" / "global_step_10")
    kl_state.load(resumed)
    assert (resumed.kl_ctrl_in_reward.value, id_state.load(resumed)) == (0.25, 64)
    fresh = a_trainer(tmp_path / "own", 10, 1.0, 0)
    kl_state.load(fresh)
    assert (fresh.kl_ctrl_in_reward.value, id_state.load(fresh)) == (1.0, 0)


def test_verls_own_deletion_is_off_during_a_save_and_its_number_is_ours(tmp_path: Path) -> None:
    asked = config(tmp_path, "auto")
    with checkpoints.verls_own_deletion_off(asked):
        assert asked.trainer.max_actor_ckpt_to_keep is None
    assert asked.trainer.max_actor_ckpt_to_keep == 7
    settings = SimpleNamespace(keep_last=None, best_gain=0.005)
    assert Checkpoints.of(SimpleNamespace(config=asked, settings=settings))._keep_last == 7
    settings.keep_last = 2
    assert Checkpoints.of(SimpleNamespace(config=asked, settings=settings))._keep_last == 2
