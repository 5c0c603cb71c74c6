"""The data sets of a runtime are read once: the next trial only draws them in another order.

Reading and measuring prompts takes seconds for a large file. A random part of a file (`data.train_max_samples`)
depends on the seed, so such a set is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from verl.trainer.ppo.v1 import trainer_base

WHOLE = -1
"""verl's number of samples for all of them."""
_SETS = "sweep_data_sets"


@contextmanager
def kept(trainer: Any) -> Iterator[None]:
    """Inside, verl's trainer gets the data sets that it was given before, if they would be the same."""
    known: dict[bool, Any] = trainer.__dict__.setdefault(_SETS, {})
    read = trainer_base.create_rl_dataset
    trainer_base.create_rl_dataset = _remembering(read, known)
    try:
        yield
    finally:
        trainer_base.create_rl_dataset = read


def _remembering(read: Callable[..., Any], known: dict[bool, Any]) -> Callable[..., Any]:
    def create_rl_dataset(*arguments: Any, is_train: bool = True, max_samples: int = WHOLE) -> Any:
        if max_samples != WHOLE:
            return read(*arguments, is_train=is_train, max_samples=max_samples)
        if is_train not in known:
            known[is_train] = read(*arguments, is_train=is_train, max_samples=max_samples)
        return known[is_train]

    return create_rl_dataset
