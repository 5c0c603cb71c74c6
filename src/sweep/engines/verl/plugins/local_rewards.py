"""`reward.num_workers=0`: rewards are computed where the responses arrive, in the agent loops, not in processes of
their own. For rewards that take less time than handing a sample to another process; verl's reward managers as ever.
"""

from __future__ import annotations

from typing import Any

from sweep.engines.verl.plugins.local_actor import LocalActor


class LocalRewards:
    """verl's reward worker, made in the process that first asks it."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._worker: Any = None

    async def compute_score(self, data: Any) -> Any:
        """verl's result for one sample."""
        if self._worker is None:
            from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

            self._worker = RewardLoopWorker(self._config)
        return await self._worker.compute_score(data)


def handles(config: Any, workers: list[Any] | None) -> list[Any] | None:
    """The workers that verl started, or one that needs no process if it was told to start none."""
    return [LocalActor(LocalRewards(config))] if workers == [] else workers
