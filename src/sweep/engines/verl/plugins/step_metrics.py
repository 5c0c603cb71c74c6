"""`StepMeter`: the metrics under `sweep/` that verl does not log itself, once a step.

Throughput counts the response tokens of the step's real samples against the time from handing out the prompts to
having all responses; verl's `timing_s/gen` starts later and includes putting the rollout to sleep.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sweep.core.clip_schedule import max_norm
from sweep.engines.verl.plugins import device_memory, preemptions
from sweep.engines.verl.warm_table import CPU_ROLLOUT
from sweep.health.findings.kl_band import AT_BOUND


class StepMeter:
    """Belongs to one trainer, whose hooks call it."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._rollout_started = 0.0
        self._rollout_seconds = 0.0
        self._server: list[dict[str, float]] = []

    @property
    def _has_own_server(self) -> bool:
        return bool(self._trainer.config.actor_rollout_ref.rollout.name == CPU_ROLLOUT)

    def rollout_starts(self) -> None:
        """The prompts are about to be handed out."""
        self._rollout_started = time.perf_counter()

    def rollout_ends(self) -> None:
        """Every response is there."""
        self._rollout_seconds = time.perf_counter() - self._rollout_started
        if self._has_own_server:
            self._server = self._trainer.call_servers("take_stats")

    def validation_ends(self) -> None:
        """What the servers did for validation counts for no step."""
        if self._has_own_server:
            self._trainer.call_servers("take_stats")

    def metrics(self, batch: Any, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Metric name to value, for the step that just ended."""
        tokens = sum(tag["response_len"] for tag in batch.tags if not tag.get("is_padding", False))
        found = {"sweep/rollout_tokens_per_s": tokens / max(self._rollout_seconds, 1e-9)}
        found |= self._server_metrics() | self._kl_metrics(metrics) | self._clip_metrics()
        found |= device_memory.metrics(self._trainer) | preemptions.metrics(self._trainer)
        return found

    def _server_metrics(self) -> dict[str, float]:
        if not self._server:
            return {}
        busy = max(sum(s["busy_seconds"] for s in self._server), 1e-9)
        return {
            "sweep/rollout_server_tokens_per_s": sum(s["generated_tokens"] for s in self._server) / busy,
            "sweep/rollout_iterations": sum(s["iterations"] for s in self._server),
            "sweep/rollout_most_running": max(s["most_running"] for s in self._server),
            "sweep/rollout_most_tokens": max(s["most_tokens"] for s in self._server),
        }

    def _kl_metrics(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        used = metrics.get("actor/reward_kl_penalty_coeff")
        if used is None:
            return {}
        controller = self._trainer.kl_ctrl_in_reward
        found = {"sweep/kl_coef_change": float(controller.value) - float(used)}
        return found | ({AT_BOUND: float(controller.at_bound)} if hasattr(controller, "at_bound") else {})

    def _clip_metrics(self) -> dict[str, float]:
        setting = self._trainer.settings.clip
        if setting is None:
            return {}
        start = float(self._trainer.config.actor_rollout_ref.actor.optim.clip_grad)
        return {"sweep/clip_norm": max_norm(start, self._trainer.global_steps - 1, *setting)}
