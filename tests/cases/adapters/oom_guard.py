"""Answers for `oom_guard`: memory curves, the price of offload, and what a guard's retry does to the ranking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core import verl_keys as keys
from sweep.health.oom_remedies import OffloadTrial, comparability, offload_tradeoff, remedies

from .diagnose_metrics import curves

WORDS = {
    "critic micro": keys.CRITIC_MICRO_BATCH,
    "actor micro": keys.ACTOR_MICRO_BATCH,
    "micro": keys.ACTOR_MICRO_BATCH,
    "log_prob micro": keys.LOG_PROB_MICRO_BATCH,
    "log-prob micro": keys.LOG_PROB_MICRO_BATCH,
    "critic mini": keys.CRITIC_MINI_BATCH,
    "mini": keys.MINI_BATCH,
    "train batch": keys.TRAIN_BATCH,
    "gpu_memory_utilization": keys.MEMORY_UTILIZATION,
    "util": keys.MEMORY_UTILIZATION,
    "max_num_seqs": keys.MAX_SEQS,
    "max_num_batched_tokens": keys.MAX_BATCHED_TOKENS,
}
"""How events name a setting, to verl's key."""

_NAMES = "|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True))
_SETTING = re.compile(rf"({_NAMES})\s*(?:batch\s*)?[=:]?\s*([\d.]+)")


def offload(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the measured trials say about offload, and its place among the remedies."""
    trials = [OffloadTrial(r["offload"], r["step_s"], r["mem_gib"]) for r in given["results"]]
    tradeoff = offload_tradeoff(trials)
    ordered = remedies(tradeoff)
    return {
        "slowdown": tradeoff.slowdown,
        "memory_saved_gib": tradeoff.memory_saved_gib,
        "moves": [(m.way.value, m.knob) for m in ordered],
        "text": "; ".join(str(m) for m in ordered),
    }


def retries(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the attempt after the guard's change is comparable with the one before."""
    settings = [{WORDS[word]: number for word, number in _SETTING.findall(event)} for event in given["events"]]
    named = [s for s in settings if s]
    result = comparability(named[0], named[-1], bool(given.get("verl_version_affected")))
    return {"tag": result.tag, "comparable": result.comparable, "action": result.action, "text": result.action}


def memory(given: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnosis of the memory curves; what to do is told by the leading finding."""
    answer = curves(given)
    return answer | {"action": answer["text"]}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "metric_segments": memory,
    "metric_rows": memory,
    "trials": offload,
    "event_sequence": retries,
}
