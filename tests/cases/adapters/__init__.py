"""From a case's component and kind to a call of the product: `answer`.

Each module has `KINDS`, kind to a function from the input to an *answer*: a dict in the words of the cases' expected
answers. Keys with a meaning of their own: `verdict` (a code name, OK or ERROR), `code`, `severity`, `codes` (names of
all findings), `moves` (list of (way, setting)), `text` (prose of the leading finding), `notes` (prose of all),
`computed` (numbers by name).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import (
    checkpoint_policy,
    diagnose_hardware,
    diagnose_metrics,
    doctor,
    logparse,
    method,
    oom_guard,
    orchestrator,
    overrides,
    preflight,
    storage,
    tracking,
)

Answer = dict[str, Any]

MODULES: Mapping[str, Any] = {
    "diagnose.metrics": diagnose_metrics,
    "diagnose.hardware": diagnose_hardware,
    "logparse": logparse,
    "oom_guard": oom_guard,
    "preflight": preflight,
    "doctor": doctor,
    "orchestrator": orchestrator,
    "storage": storage,
    "overrides": overrides,
    "tracking": tracking,
    "checkpoint_policy": checkpoint_policy,
    "method.step1_eta": method,
    "method.step2_kl": method,
    "method.step3_tokens": method,
    "method.step4_lr_lam": method,
}
"""Component to the module that answers for it."""


def answer_for(component: str, kind: str) -> Callable[[Mapping[str, Any]], Answer]:
    """The function that answers inputs of the kind.

    Raises:
        LookupError: no call answers the kind.
    """
    module = MODULES.get(component)
    if module is None:
        raise LookupError(f"no adapter for component {component!r}; known: {', '.join(MODULES)}")
    found = module.KINDS.get(kind) or module.KINDS.get(f"{component} {kind}")
    if found is not None:
        return found  # type: ignore[no-any-return]
    raise LookupError(f"no product call for {component} input of kind {kind!r}; known: {', '.join(module.KINDS)}")
