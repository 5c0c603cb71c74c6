"""`sweep/preemptions`: requests that vLLM took off the device in this step for want of cache.

Read from the engine's own metrics page, which it serves only if `disable_log_stats` is false; else there is no metric.
"""

from __future__ import annotations

import urllib.request
from typing import Any

COUNTER = "vllm:num_preemptions_total"
TIMEOUT_SECONDS = 2.0
_last: dict[str, float] = {}


def total(page: str) -> float | None:
    """The counter summed over engines, None if the page does not have it."""
    lines = [line for line in page.splitlines() if line.startswith(COUNTER)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines) if lines else None


def metrics(trainer: Any) -> dict[str, float]:
    """The preemptions of all servers since the last call; nothing where they cannot be read."""
    rollout = trainer.config.actor_rollout_ref.rollout
    if rollout.name != "vllm" or rollout.disable_log_stats:
        return {}
    counts = [_since_last(address) for address in trainer.llm_server_manager.get_addresses()]
    known = [count for count in counts if count is not None]
    return {"sweep/preemptions": sum(known)} if known else {}


def _since_last(address: str) -> float | None:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            now = total(answer.read().decode())
    except (OSError, ValueError):
        return None  # a metric that is missing must not cost a trial
    if now is None:
        return None
    before, _last[address] = _last.get(address, 0.0), now
    return now - before
