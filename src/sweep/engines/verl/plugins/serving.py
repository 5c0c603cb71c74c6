"""Between trials: `serve` takes one after another from the mailbox, `run_once` trains the process's own configuration.

A trial that fails of something that leaves the processes sound (its configuration is refused, verl's own checks find
it wrong) leaves the runtime usable, since the next reset and its guard decide. Any other failure ends the runtime.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import open_dict

from sweep.engines.machine import describe
from sweep.engines.mailbox import STARTED_VARIABLE, Mailbox, NoMailbox, trials
from sweep.engines.verl.commands import METRICS_FILE
from sweep.engines.verl.plugins import device_memory
from sweep.engines.verl.plugins.running_trial import RunningTrial

HARMLESS = (ValueError, AssertionError)
"""What verl's checks raise, in the driver or in a worker: the processes go on as before."""


def run_once(trainer: Any, mailbox: Mailbox) -> None:
    """Trains the process's own configuration, reporting as a trial of the mailbox would."""
    mailbox.put(_ready(trainer))
    trial = RunningTrial(str(trainer.config.trainer.experiment_name), mailbox)
    _make_metrics_folder(os.environ)
    try:
        _require_memory(trainer)
        seen = {"reset_seconds": 0.0, "warm": False, "machine": _machine(trainer)}
        mailbox.put({"type": "started", "id": trial.id, **seen})
        trainer.train(trial)
    except Exception as error:
        mailbox.put(_ended(trial, error, reusable=False))
        raise
    mailbox.put(_ended(trial, None, reusable=False))


def _require_memory(trainer: Any) -> None:
    """Nothing, if every device has the memory free that the settings ask for; it is measured while the rollout sleeps.

    Raises:
        MemoryShort: naming the ranks whose device has less; the rollout sleeps on.
    """
    if trainer.settings.min_free_gib is None:
        return
    trainer.checkpoint_manager.sleep_replicas()
    device_memory.refuse_without(trainer, trainer.settings.min_free_gib)
    trainer.checkpoint_manager.update_weights(trainer.global_steps)


def serve(trainer: Any, mailbox: Mailbox) -> None:
    """Trains the mailbox's trials until it says that there are no more."""
    reset = trainer.reset_class(trainer)
    warm_up(trainer)
    mailbox.put(_ready(trainer))
    for served, command in enumerate(trials(mailbox)):
        run_trial(trainer, reset, mailbox, command, warm=served > 0)


def warm_up(trainer: Any) -> None:
    """A few steps that nobody measures: compiled code and allocated memory are there before the first trial."""
    steps = trainer.settings.warmup_steps
    if steps < 1:
        return
    with open_dict(trainer.config):
        trainer.config.trainer.update(logger=[], val_before_train=False, test_freq=-1, save_freq=-1)
    trainer.total_training_steps = steps
    trainer.train(RunningTrial("", NoMailbox()))


def run_trial(trainer: Any, reset: Any, mailbox: Mailbox, command: Mapping[str, Any], warm: bool) -> None:
    """One trial from reset to its last message.

    Raises:
        Exception: whatever ended the trial, if the runtime may not be used again.
    """
    trial = RunningTrial(str(command["id"]), mailbox)
    started = time.perf_counter()
    try:
        with _environment(command.get("env") or {}):
            reset.run(command)
            seconds = time.perf_counter() - started
            print(
                f"[sweep] trial {trial.id}: reset in {seconds:.2f} s {reset.part_seconds}, off by {reset.gaps}",
                flush=True,
            )
            seen = {"reset_seconds": seconds, "warm": warm, "machine": _machine(trainer), "fixed_batch": reset.gaps}
            mailbox.put({"type": "started", "id": trial.id, **seen})
            trainer.train(trial)
            _close_logger(trainer, failed=False)
    except HARMLESS as error:
        _close_logger(trainer, failed=True)
        mailbox.put(_ended(trial, error, reusable=True))
    except Exception as error:
        mailbox.put(_ended(trial, error, reusable=False))
        raise
    else:
        mailbox.put(_ended(trial, None, reusable=True))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These environment variables inside, the old ones after; the folder of the metrics file exists."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    _make_metrics_folder(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _make_metrics_folder(variables: Mapping[str, str]) -> None:
    """The folder of the file that verl logs to exists, which verl makes only for a file of its own choice."""
    if METRICS_FILE in variables:
        Path(variables[METRICS_FILE]).parent.mkdir(parents=True, exist_ok=True)


def _machine(trainer: Any) -> str:
    """Where the first training worker runs."""
    return str(trainer.call_workers(_described)[0])


def _described(worker: Any) -> str:
    return describe()


def _close_logger(trainer: Any, failed: bool) -> None:
    logger = trainer.__dict__.pop("logger", None)
    if logger is not None:
        logger.finish(exit_code=1 if failed else 0)


def _ready(trainer: Any) -> dict[str, Any]:
    started = float(os.environ.get(STARTED_VARIABLE) or trainer.made_at)
    return {"type": "ready", "startup_seconds": time.time() - started}


def _ended(trial: RunningTrial, error: Exception | None, reusable: bool) -> dict[str, Any]:
    return {
        "type": "ended",
        "id": trial.id,
        "last_step": trial.last_step,
        "error": "" if error is None else f"{type(error).__name__}: {error}",
        "stopped_by": trial.stopped_by,
        "reusable": reusable,
    }
