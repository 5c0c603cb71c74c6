"""The keys that a mistyped, shortened or renamed key most likely meant: `suggest`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

from sweep.core import verl_keys as keys
from sweep.health.preflight.facts import UnknownKey

RENAMED = {
    "lr_decay_style": ("lr_scheduler_type", "lr_decay_style exists only for Megatron; FSDP has lr_scheduler_type"),
    "sharding_strategy": ("reshard_after_forward", "reshard_after_forward=true is FULL_SHARD"),
    "val_temperature": ("val_kwargs.temperature", "sampling of validation has its own group"),
    "grad_offload": ("param_offload", "gradients follow the parameters"),
}
"""Last part of a key: its successor beside it, and why. Source: METHOD section 9; verl trainer/config."""

REPLACED = {
    "save_interval": (keys.SAVE_FREQ, "not a verl key"),
    "keep_last_n": (keys.KEEP_ACTOR, "not a verl key; the critic has its own"),
    "remove_previous_ckpt_in_save": (keys.KEEP_ACTOR, "removed from verl"),
    "save_best_reward": (keys.SAVE_FREQ, "verl keeps no best checkpoint; the campaign's plug-in does"),
}
"""Last part of a key: the one key that replaces it wherever it stood. Source: METHOD section 9."""

MOVED_GROUPS = {"critic.model.fsdp_config.": "critic.fsdp.", "critic.fsdp_config.": "critic.fsdp."}
"""Source: verl trainer/config/critic."""

MAIN_SECTIONS = ("actor_rollout_ref.", "algorithm.", "data.", "trainer.", "critic.")
"""Sections that a shortened key most likely means, before reward models and teachers."""

GOOD_ENOUGH = 0.6
"""Likeness below which a key is not suggested. Ours, from the names in the tests."""

SAME_PARENT = 0.15
"""What a common parent adds to likeness: most typing errors are in the last part. Ours."""

SUGGESTIONS = 3


def suggest(key: str, known: Iterable[str]) -> UnknownKey:
    """The unknown key with the known keys it most likely meant, nearest first."""
    names = set(known)
    stem, _, leaf = key.rpartition(".")
    if leaf in RENAMED:
        successor, note = RENAMED[leaf]
        beside = f"{stem}.{successor}" if stem else successor
        found = [beside] if beside in names else _ending_in(beside, names)
        return UnknownKey(key, tuple(found[:SUGGESTIONS]), note)
    if leaf in REPLACED:
        successor, note = REPLACED[leaf]
        return UnknownKey(key, (successor,), note)
    for old, new in MOVED_GROUPS.items():
        moved = key.replace(old, new, 1)
        if key.startswith(old) and moved in names:
            return UnknownKey(key, (moved,), f"{old}* is {new}* in this verl")
    return UnknownKey(key, tuple((_ending_in(key, names) or _alike(key, names))[:SUGGESTIONS]))


def _ending_in(short: str, names: set[str]) -> list[str]:
    """Known keys that end in the given one: the user left out the front."""
    return sorted((name for name in names if name.endswith(f".{short}")), key=_prominence)


def _alike(key: str, names: set[str]) -> list[str]:
    rated = sorted(((_likeness(key, name), name) for name in names), key=lambda pair: (-pair[0], _prominence(pair[1])))
    return [name for rating, name in rated[:SUGGESTIONS] if rating >= GOOD_ENOUGH]


def _likeness(key: str, name: str) -> float:
    """From 0 up: half from the last parts' letters, half from the words both keys share, more under one parent."""
    letters = SequenceMatcher(None, key.rpartition(".")[2], name.rpartition(".")[2]).ratio()
    mine, theirs = set(re.split(r"[._]", key)), set(re.split(r"[._]", name))
    beside = SAME_PARENT if key.rpartition(".")[0] == name.rpartition(".")[0] else 0.0
    return (letters + len(mine & theirs) / len(mine | theirs)) / 2 + beside


def _prominence(name: str) -> tuple[int, int, str]:
    section = next((place for place, front in enumerate(MAIN_SECTIONS) if name.startswith(front)), len(MAIN_SECTIONS))
    return section, len(name), name
