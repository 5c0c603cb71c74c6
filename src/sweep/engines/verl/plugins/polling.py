"""A replay buffer that waits for the samples instead of looking for them every two seconds.

The agent loops say when they are done; then one look suffices. Where more prompts may be asked for while sampling
(group filtering, refill of failures), looking again is needed, and is done every `sweep.poll_seconds`.

Source: verl trainer/ppo/v1/replay_buffer.py, `ReplayBuffer.sample`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep.engines.verl.plugins.ordering import in_data_order


def make_prompt(buffer: Any, poll_seconds: float, wait_until_generated: Callable[[], None]) -> Any:
    """The buffer, changed so that `sample` returns as soon as it can, its batch in the order of the data."""
    look = buffer.sample
    refills = buffer.filter_groups_metric is not None or buffer.sync_refill_failed_groups

    def sample(global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        if partition_id == "val" or not refills:
            wait_until_generated()
        batch, metrics = look(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        return in_data_order(batch), metrics

    buffer.poll_interval = poll_seconds
    buffer.sample = sample
    return buffer
