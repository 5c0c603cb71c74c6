"""A trial's configuration in a running trainer: composed anew by Hydra, compared with the start, then written over it.

Setting only the keys that a trial names would be wrong: the critic's mini-batch, epochs and more are interpolations
of the actor's, which verl has resolved away by the time that a trainer runs. And a key that the last trial changed
has to come back although this trial does not name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from sweep.core import verl_keys as keys
from sweep.engines.verl.warm_table import PLACES, needs_new_runtime, place

_ABSENT = object()


class TrialRefused(ValueError):
    """The trial asks for something that this runtime cannot become; the runtime is as it was."""


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """verl's configuration with these overrides, as verl's task runner sees it: flat, every interpolation resolved."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from verl.utils.device import auto_set_device

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra_compose("ppo_trainer", overrides=list(overrides))
    auto_set_device(config)
    config.transfer_queue.enable = True
    OmegaConf.resolve(config)
    return flattened(config)


def flattened(config: DictConfig) -> dict[str, Any]:
    """Dotted key to value; lists and empty sections are values."""
    leaves: dict[str, Any] = {}
    _collect(OmegaConf.to_container(config, resolve=True), "", leaves)
    return leaves


def _collect(node: Mapping[Any, Any], prefix: str, leaves: dict[str, Any]) -> None:
    for name, value in node.items():
        if isinstance(value, Mapping) and value:
            _collect(value, f"{prefix}{name}.", leaves)
        else:
            leaves[f"{prefix}{name}"] = value


def changed_keys(wanted: Mapping[str, Any], start: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that only one of the two has, or that differ in value, sorted."""
    return tuple(k for k in sorted(wanted.keys() | start) if wanted.get(k, _ABSENT) != start.get(k, _ABSENT))


def check(wanted: Mapping[str, Any], start: Mapping[str, Any]) -> None:
    """Nothing, if a runtime that started with `start` can become `wanted`.

    Raises:
        TrialRefused: naming the keys that need a new runtime.
    """
    fixed = needs_new_runtime(changed_keys(wanted, start), str(start[keys.ROLLOUT_NAME]))
    if fixed:
        raise TrialRefused(f"a running verl cannot change {', '.join(fixed)}; the trial needs a new runtime")


def write(config: DictConfig, wanted: Mapping[str, Any]) -> None:
    """Every setting that can be changed warm has the wanted value, or is gone if the trial does not have it."""
    rollout = str(wanted[keys.ROLLOUT_NAME])
    now = flattened(config)
    with open_dict(config):
        for key in PLACES:
            if place(key, rollout) is None or wanted.get(key, _ABSENT) == now.get(key, _ABSENT):
                continue
            if key in wanted:
                OmegaConf.update(config, key, wanted[key], merge=False)
            else:
                section, _, name = key.rpartition(".")
                del OmegaConf.select(config, section)[name]
