"""The measuring process's loop in this process, around a fake vLLM and a mailbox that plays commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep.core.curve import Curve
from sweep.core.overrides import Overrides
from sweep.engines.verl.compose import compose
from sweep.engines.vllm.rollout_child import Rollout, serve
from sweep.engines.vllm.rollout_spec import rollout_spec

MESSAGES = [[{"role": "user", "content": "a bb ccc"}], [{"role": "user", "content": "dddd"}]]


class PlayedMailbox:
    """A fake mailbox: commands in order, silences between them, messages kept."""

    def __init__(self, *commands: Mapping[str, Any] | None, stop_at: int = 0) -> None:
        self.commands = [*commands, {"type": "end"}]
        self.stop_at = stop_at
        self.messages: list[dict[str, Any]] = []

    def take(self, wait_seconds: float) -> Any:
        return self.commands.pop(0)

    def put(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def report_step(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> str:
        self.messages.append({"type": "step", "id": trial_id, "step": step, "metrics": dict(metrics)})
        return "the test says so" if step == self.stop_at else ""


@pytest.fixture
def rollout(fake_vllm: Path, model: Path, tmp_path: Path) -> Rollout:
    return start(model, tmp_path)


def start(model: Path, tmp_path: Path, **settings: object) -> Rollout:
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": messages}) for messages in MESSAGES))
    given = {
        "actor_rollout_ref.model.path": str(model),
        "data.train_files": str(file),
        "data.train_batch_size": 2,
        "data.max_prompt_length": 3,
        "data.max_response_length": 20,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.max_num_batched_tokens": 50,
    }
    return Rollout.start(rollout_spec(compose(Overrides.of({**given, **settings})).config, gpus=2))


def curve(mailbox: PlayedMailbox, trial_id: str) -> Curve:
    rows = [m for m in mailbox.messages if m["type"] == "step" and m["id"] == trial_id]
    return Curve.from_rows((m["step"], m["metrics"]) for m in rows)


def test_a_trial_is_told_round_by_round_under_the_names_that_the_curve_reads(rollout: Rollout) -> None:
    mailbox = PlayedMailbox({"type": "trial", "id": "a", "steps": 3})
    serve(rollout, mailbox, 12.0)
    assert [m["type"] for m in mailbox.messages] == ["ready", "started", "step", "step", "step", "ended"]
    assert mailbox.messages[0] == {"type": "ready", "startup_seconds": 12.0}
    ended = mailbox.messages[-1]
    assert (ended["last_step"], ended["error"], ended["stopped_by"], ended["reusable"]) == (3, "", "", True)
    found = curve(mailbox, "a")
    assert found.steps == (1, 2, 3)
    assert found.response_tokens == (10.0, 10.0, 10.0)  # half of 20: the fake ends its responses by itself
    assert found.preemptions == (6.0, 6.0, 6.0)  # three a round and replica, and two replicas
    assert found.free_gib == (59.0, 58.0, 57.0) and found.peak_gib == (11.0, 12.0, 13.0)
    assert min(found.gen_seconds) >= 20 / 5000  # two responses at the fake's 5000 token/s
    assert found.rollout_tokens_per_s == pytest.approx([2 * 20 / s for s in found.gen_seconds])  # of two replicas
    assert rollout.llm.resets == 3  # no round finds its prompts in the cache


def test_a_replica_generates_its_share_and_no_response_leaves_the_context(rollout: Rollout) -> None:
    assert [p["prompt_token_ids"] for p in rollout.prompts] == [
        [1, 2, 3],
        [1, 2, 3],
    ]
    assert [s.max_tokens for s in rollout.sampling] == [10, 10]


def test_further_trials_are_warm_and_a_silent_host_is_asked_again(rollout: Rollout) -> None:
    commands = [{"type": "trial", "id": "a", "steps": 1}, None, {"type": "trial", "id": "b", "steps": 2}]
    mailbox = PlayedMailbox(*commands)
    serve(rollout, mailbox, 1.0)
    assert [m["warm"] for m in mailbox.messages if m["type"] == "started"] == [False, True]
    assert curve(mailbox, "b").steps == (1, 2) and curve(mailbox, "b").preemptions == (6.0, 6.0)


def test_a_stopped_trial_ends_after_its_round(rollout: Rollout) -> None:
    mailbox = PlayedMailbox({"type": "trial", "id": "a", "steps": 9}, stop_at=2)
    serve(rollout, mailbox, 1.0)
    assert (mailbox.messages[-1]["last_step"], mailbox.messages[-1]["stopped_by"]) == (2, "the test says so")


def test_without_a_gpu_there_is_no_memory_to_report(rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout.llm, "collective_rpc", lambda method: [{}])
    assert not any("gib" in name or "memory" in name for name in rollout.round())


def test_a_longer_prompt_leaves_less_room_for_its_response(fake_vllm: Path, model: Path, tmp_path: Path) -> None:
    short = start(model, tmp_path, **{"data.max_prompt_length": 1, "data.max_response_length": 6})
    assert [s.max_tokens for s in short.sampling] == [2, 2]  # 1 + 6 less 3, and half of it
