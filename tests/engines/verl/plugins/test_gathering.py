"""Writes to the queue are gathered, lose nothing and keep their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sweep.engines.verl.plugins import gathering
from sweep.engines.verl.plugins.gathering import GatheringQueue


class FakeQueue:
    """TransferQueue's two functions, writing down what they are given."""

    def __init__(self) -> None:
        self.writes: list[dict[str, Any]] = []
        self.broken = False
        self.other = "untouched"

    async def async_kv_batch_put(self, **written: Any) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionError("queue is gone")
        self.writes.append(written)


def gathered(queue: FakeQueue) -> GatheringQueue:
    return GatheringQueue(queue, join=lambda partition, samples: (partition, *samples))


async def write_two_prompts(queue: GatheringQueue) -> None:
    for uid in ("1", "2"):
        await queue.async_kv_put(key=uid, partition_id="train", tag={"status": "running"})
        await queue.async_kv_batch_put(keys=[f"{uid}_0"], partition_id="train", fields=[{"x": uid}], tags=[{"n": uid}])
        await queue.async_kv_put(key=uid, partition_id="train", tag={"status": "finished"})


def test_a_flush_writes_samples_first_then_the_last_state_of_each_prompt() -> None:
    queue = FakeQueue()

    async def scenario() -> None:
        own = gathered(queue)
        await write_two_prompts(own)
        assert queue.writes == []
        await own.flush()

    asyncio.run(scenario())
    assert queue.writes == [
        {
            "keys": ["1_0", "2_0"],
            "partition_id": "train",
            "fields": ("train", {"x": "1"}, {"x": "2"}),
            "tags": [{"n": "1"}, {"n": "2"}],
        },
        {"keys": ["1", "2"], "partition_id": "train", "tags": [{"status": "finished"}] * 2},
    ]


def test_without_a_flush_everything_is_written_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.01)
    queue = FakeQueue()

    async def scenario() -> None:
        await write_two_prompts(gathered(queue))
        await asyncio.sleep(0.2)

    asyncio.run(scenario())
    assert [write["keys"] for write in queue.writes] == [["1_0", "2_0"], ["1", "2"]]


def test_what_is_put_while_others_are_written_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.0)
    queue = FakeQueue()

    async def scenario() -> None:
        own = gathered(queue)
        await own.async_kv_put(key="1", partition_id="train", tag={})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert queue.writes == [] and not own._states, "the first write is under way"
        await own.async_kv_put(key="2", partition_id="train", tag={})
        await asyncio.sleep(0.05)

    asyncio.run(scenario())
    assert [write["keys"] for write in queue.writes] == [["1"], ["2"]]


def test_partitions_are_kept_apart() -> None:
    queue = FakeQueue()

    async def scenario() -> None:
        own = gathered(queue)
        await own.async_kv_put(key="1", partition_id="train", tag={"status": "finished"})
        await own.async_kv_put(key="1", partition_id="val", tag={"status": "failure"})
        await own.flush()

    asyncio.run(scenario())
    assert {w["partition_id"]: w["tags"] for w in queue.writes} == {
        "train": [{"status": "finished"}],
        "val": [{"status": "failure"}],
    }


def test_a_write_that_failed_in_the_background_is_raised_by_the_next_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.0)
    queue = FakeQueue()

    async def scenario() -> None:
        own = gathered(queue)
        queue.broken = True
        await write_two_prompts(own)
        await asyncio.sleep(0.05)
        queue.broken = False
        with pytest.raises(ConnectionError, match="queue is gone"):
            await own.flush()
        await own.flush()

    asyncio.run(scenario())


def test_everything_else_is_the_queues_own() -> None:
    assert gathered(FakeQueue()).other == "untouched"
