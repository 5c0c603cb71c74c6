"""`GatheringQueue`: TransferQueue as the agent loops see it, writing many samples in one go.

verl's agent loops write three times for each prompt (running, its samples, finished), a round trip through two other
processes each. Here what is written within a moment is written together: samples first, then the states of prompts,
of which only the last counts. A reader may see a sample that much later.

Source: verl trainer/ppo/v1/agent_loop_tq.py; TransferQueue 0.1.11 interface.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

GATHER_SECONDS = 0.05
"""The longest that something written waits for company; the trainer's own wait ends it at once."""


class GatheringQueue:
    """The functions of the module `transfer_queue`, two of them gathering.

    `join` makes what the queue stores of a partition's samples, each a dict of fields.
    """

    def __init__(self, queue: Any, join: Callable[[str, list[dict[str, Any]]], Any]) -> None:
        self._queue = queue
        self._join = join
        self._samples: dict[str, list[tuple[str, dict[str, Any], dict[str, Any]]]] = defaultdict(list)
        self._states: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._writing = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        """A prompt's state."""
        self._states[partition_id][key] = {**self._states[partition_id].get(key, {}), **tag}
        self._flush_later()

    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: list[dict[str, Any]], tags: list[dict[str, Any]]
    ) -> None:
        """Samples, with their fields not yet joined."""
        self._samples[partition_id] += zip(keys, fields, tags, strict=True)
        self._flush_later()

    async def flush(self) -> None:
        """Everything written so far is in the queue.

        Raises:
            Exception: whatever kept this or an earlier write from getting there.
        """
        async with self._writing:
            await self._write()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _flush_later(self) -> None:
        if self._later is None or self._later.done():
            self._later = asyncio.create_task(self._wait_and_write())

    async def _wait_and_write(self) -> None:
        while self._samples or self._states:
            await asyncio.sleep(GATHER_SECONDS)
            async with self._writing:
                try:
                    await self._write()
                except Exception as error:
                    self._error = error  # nobody awaits this task: the next flush tells

    async def _write(self) -> None:
        samples, self._samples = self._samples, defaultdict(list)
        states, self._states = self._states, defaultdict(dict)
        for partition, rows in samples.items():
            keys, fields, tags = (list(column) for column in zip(*rows, strict=True))
            await self._queue.async_kv_batch_put(
                keys=keys, partition_id=partition, fields=self._join(partition, fields), tags=tags
            )
        for partition, tags_of in states.items():
            await self._queue.async_kv_batch_put(
                keys=list(tags_of), partition_id=partition, tags=list(tags_of.values())
            )
