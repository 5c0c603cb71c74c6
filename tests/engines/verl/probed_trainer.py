"""Inside verl's processes, for tests only: our trainer, telling what it is made of, and one that resets incompletely.

Loaded beside the product's plug-ins. A trial's command may name parts of the reset to leave out (`leave_out`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import psutil
from verl.trainer.ppo.v1.trainer_base import register_trainer

from sweep.engines.mailbox import open_mailbox
from sweep.engines.verl.plugins import reset
from sweep.engines.verl.plugins.running_trial import RunningTrial
from sweep.engines.verl.plugins.trainer import SweepTrainer
from sweep.engines.verl.plugins.trial_reset import LOSS_FIELDS, TrialReset


class LeakyReset(TrialReset):
    """Leaves out what the command says; the guard then reports instead of refusing."""

    def parts(self, command: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Callable[[], None]]:
        left_out = command.get("leave_out") or []
        parts = super().parts(command, wanted)
        unknown = set(left_out) - set(parts)
        assert not unknown, f"no such parts: {unknown}"
        if left_out:
            parts["guard"] = partial(self._report, command["id"])
        return {name: part for name, part in parts.items() if name not in left_out}

    def _report(self, trial_id: str) -> None:
        open_mailbox().put({"type": "guard", "id": trial_id, "complaints": self.complaints()})


@register_trainer("sweep_probed")
class ProbedTrainer(SweepTrainer):
    """Sends one more message after each trial: weights, what the rollout serves, memory."""

    reset_class = LeakyReset

    def train(self, trial: RunningTrial) -> None:
        super().train(trial)
        state = self.call_workers(reset.state, LOSS_FIELDS)[0]
        message = {
            "type": "probe",
            "id": trial.id,
            "weights": {role: part.weights for role, part in state.items()},
            "served": self.call_servers("weights_fingerprint")[0],
            "memory_mib": _memory_of_processes(),
        }
        open_mailbox().put(message)


def _memory_of_processes() -> dict[str, float]:
    """MiB resident by kind of process, of all processes that belong to this verl."""
    tag = os.environ["SWEEP_MAILBOX"]
    found: dict[str, float] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get("SWEEP_MAILBOX") == tag:
                kind = (process.cmdline() or ["?"])[0].split(".")[0]
                found[kind] = found.get(kind, 0.0) + process.memory_info().rss / 2**20
        except psutil.Error:
            continue
    return found
