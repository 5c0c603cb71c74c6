"""The only trial of a process: what it asks and tells, on a trainer that does nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("omegaconf")

from sweep.engines.mailbox import NoMailbox
from sweep.engines.verl.commands import METRICS_FILE
from sweep.engines.verl.plugins.device_memory import MemoryShort
from sweep.engines.verl.plugins.serving import run_once


class Told(NoMailbox):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]


class IdleTrainer:
    """What `run_once` uses of a trainer; writes down in which order."""

    made_at = 0.0
    global_steps = 7

    def __init__(self, min_free_gib: float | None, free_gib: float = 6.0) -> None:
        self.settings = SimpleNamespace(min_free_gib=min_free_gib)
        self.config = SimpleNamespace(trainer=SimpleNamespace(experiment_name="long"))
        self.checkpoint_manager = self
        self.free_gib = free_gib
        self.done: list[object] = []

    def call_workers(self, function: Any, *arguments: Any) -> list[Any]:
        if function.__name__ != "free_now_gib":
            return ["a node"]
        self.done.append("asked")
        return [self.free_gib]

    def sleep_replicas(self) -> None:
        self.done.append("asleep")

    def update_weights(self, step: int) -> None:
        self.done.append(("weights", step))

    def train(self, trial: Any) -> None:
        self.done.append("trained")


def test_the_memory_is_asked_for_while_the_rollout_sleeps_and_the_weights_come_back() -> None:
    trainer, told = IdleTrainer(min_free_gib=5.0), Told()
    run_once(trainer, told)
    assert trainer.done == ["asleep", "asked", ("weights", 7), "trained"]
    assert told.types == ["ready", "started", "ended"]


def test_without_a_limit_the_rollout_is_left_alone() -> None:
    trainer = IdleTrainer(min_free_gib=None)
    run_once(trainer, Told())
    assert trainer.done == ["trained"]


def test_too_little_memory_ends_the_trial_before_it_started() -> None:
    trainer, told = IdleTrainer(min_free_gib=5.0, free_gib=4.9), Told()
    with pytest.raises(MemoryShort, match=r"wanted 5 GiB: 4\.9 GiB on the device of rank 0"):
        run_once(trainer, told)
    assert told.types == ["ready", "ended"]
    assert "MemoryShort" in told.messages[-1]["error"] and not told.messages[-1]["reusable"]


def test_the_folder_of_the_metrics_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METRICS_FILE, str(tmp_path / "sweep" / "long-1.jsonl"))
    run_once(IdleTrainer(min_free_gib=None), Told())
    assert list(tmp_path.iterdir()) == [tmp_path / "sweep"]
