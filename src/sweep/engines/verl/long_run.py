"""`best_script`: the verl command that a campaign ends with, for the run that it was all for.

It starts verl's own entry point with the trainer and plug-ins of the trials, since what was measured holds for
them; without a mailbox they report to nobody. A shell, a cluster and the user's patience are not its business.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from sweep.core import verl_keys as keys
from sweep.core.checkpoint_policy import SAVE_STEPS
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.commands import METRICS_FILE
from sweep.engines.verl.environment import cpu_engine, gpu_engine, inspect, offline_variables
from sweep.engines.verl.settings import (
    ENDLESS_EPOCHS,
    TRAINER_MODE,
    EngineSettings,
    cpus_of,
    gpus_of,
    gpus_per_node,
    seeds,
    worker_variables,
)
from sweep.engines.verl.warm_table import CPU_ROLLOUT

_STARTED = "$SWEEP_BEGAN_AT"
"""Stands for the Unix time of the script's start, which the shell fills in."""

_HEAD = f"""#!/bin/sh
# The long run with the winners of all stages: sh best.sh [further verl settings, say trainer.logger=[console,mlflow]]
{_STARTED[1:]}=$(date +%s)
"""


def best_script(
    trial: Trial,
    settings: EngineSettings | None = None,
    *,
    locate: Callable[[Overrides], Overrides] = lambda overrides: overrides,
    name: str = "best",
    python: str = "python3",
    save_steps: int = SAVE_STEPS,
) -> str:
    """A POSIX shell script of one command, an argument a line, environment variables first; its own arguments are
    passed on to verl. `python` is the interpreter that has verl; the variable PYTHON names another.

    Runs the whole schedule from its first step, saves as it goes and resumes where it was if it is started again; each
    start logs to a file of its own in `sweep/`, since verl empties the file that it opens.
    Without `settings` it is meant for this machine: for its GPUs if the trial names a rollout, else for its CPU.
    """
    settings = settings or _settings_here(trial)
    overrides = locate(_long_run(trial, settings, name, save_steps))
    variables = {
        **offline_variables(str(overrides.get(keys.MODEL_PATH, ""))),
        **settings.variables,
        METRICS_FILE: f"sweep/{name}-{_STARTED}.jsonl",
    }
    words = [f"{key}={_word(value)}" for key, value in sorted(variables.items())]
    words += [f'"${{PYTHON:-{python}}}" -m verl.trainer.main_ppo']
    lines = [*words, *(_word(a) for a in (*overrides.command_line(), *worker_variables(variables))), '"$@"']
    return _HEAD + " \\\n  ".join(lines) + "\n"


def _word(text: str) -> str:
    """The text as one word of the shell, with the time of the start filled in."""
    return shlex.quote(text).replace(_STARTED, f"'\"{_STARTED}\"'")


def _settings_here(trial: Trial) -> EngineSettings:
    if trial.overrides.get(keys.ROLLOUT_NAME) in (None, CPU_ROLLOUT):
        return cpu_engine()
    return gpu_engine(inspect(), gpus_per_node=gpus_per_node(trial))


def _long_run(trial: Trial, settings: EngineSettings, name: str, save_steps: int) -> Overrides:
    steps = trial.overrides.get(keys.SCHEDULE_STEPS, trial.steps)
    habits: dict[str, object] = {
        "trainer.val_before_train": False,
        "trainer.logger": ["console", "file"],
        "trainer.project_name": "sweep",
        "trainer.experiment_name": name,
        "trainer.default_local_dir": f"checkpoints/{name}",
        "trainer.save_freq": save_steps,
        "trainer.resume_mode": "auto",
        **(_own_cluster(trial, settings) if settings.on_cpu else {}),
    }
    whole: dict[str, object] = {
        "trainer.v1.trainer_mode": TRAINER_MODE,
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": ENDLESS_EPOCHS,
        f"+{keys.SCHEDULE_STEPS}": steps,
        "+sweep.poll_seconds": settings.poll_seconds,
        "+sweep.reuse": False,
    }
    parts = (settings.platform_settings, Overrides.of(habits), seeds(trial.seed), trial.overrides, Overrides.of(whole))
    return Overrides.of([pair for part in parts for pair in part])


def _own_cluster(trial: Trial, settings: EngineSettings) -> dict[str, object]:
    """What the Ray cluster that verl starts for itself must claim on a machine without GPUs."""
    return {
        "ray_kwargs.ray_init.num_cpus": 2 * cpus_of(trial, settings),
        "+ray_kwargs.ray_init.num_gpus": gpus_of(trial),
    }
