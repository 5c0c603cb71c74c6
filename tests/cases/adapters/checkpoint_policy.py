"""Answers for `checkpoint_policy`: folders of checkpoints through the policy, deaths beside them through the doctor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.checkpoint_policy import BEST_GAIN, KEEP_LAST, Best, better, retention

from .doctor import log_text

GAIN = re.compile(r"([\d.]+)\s*%")
COMPLETE = "complete"


def checkpoint_dir(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which checkpoints stay, which go, and from which one a run resumes."""
    states = {int(step): state == COMPLETE for step, state in given["dirs"].items()}
    best, why = _best(given)
    found = retention(states, best, int(given.get("keep_last_n", KEEP_LAST)))
    return {
        "keep": [f"{step} (best)" if step == best else str(step) for step in found.keep],
        "delete": [str(step) for step in found.delete],
        "partial": [str(step) for step in found.partial],
        "resume_from": found.resume_from,
        "best": best,
        "best_stays": why,
        "text": why,
    }


def death(given: Mapping[str, Any]) -> dict[str, Any]:
    """The doctor's answer, with what it says is left of the trial."""
    answer = log_text(given)
    last = given.get("last_logged_step", given.get("last_step", 0))
    kept = [text for text in answer["ordered_fixes"] if "metrics" in text]
    return answer | {"salvage": f"metrics of steps 1-{last}: {'; '.join(kept)}"}


def _best(given: Mapping[str, Any]) -> tuple[int | None, str]:
    """The best checkpoint after the rewards in the order of their steps, and why it stays."""
    stated = GAIN.search(str(given.get("best_threshold", "")))
    gain = float(stated[1]) / 100 if stated else float(given.get("best_gain", BEST_GAIN))
    rewards = {int(step): _number(reward) for step, reward in (given.get("best_rewards") or {}).items()}
    start = given.get("best_step")
    best = Best(start, rewards[start]) if start in rewards else None
    said = []
    for step, reward in sorted(rewards.items()):
        if best is not None and step <= best.step:
            continue
        replaced = better(best, step, reward, gain)
        if replaced is best and best is not None:
            said.append(f"{best.step}, because {reward:g} is only {best.gain(reward):+.2%}")
        best = replaced
    return (best.step if best else start), "; ".join(said)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "checkpoint_dir": checkpoint_dir,
    "trial_events": death,
    "log_text": death,
}
