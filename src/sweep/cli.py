"""`python -m sweep`: reads the command line, runs the campaign, and turns every ending into an exit code.

Exit codes: 0 done, 1 a bug or a broken environment, 2 configuration, 3 halted by a rule, 4 done but trials failed,
5 budget spent, 130 interrupted. Nothing heavy is imported before the request is known to make sense.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from sweep.errors import BudgetSpent, ConfigError, SweepError

DONE, BUG, CONFIGURATION, HALTED, TRIALS_FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130

HELP = """\
usage: python -m sweep [KEY=VALUE ...]

Tunes verl PPO in four stages, one lever at a time; the winner of each is frozen before the next starts.
Running the same command again goes on where it ended.

  stage=minibatch|kl|token_budget|lr_lambda|all   what to tune (all); further stages are files in sweeps/
  model=tiny|smollm2-135m|qwen2.5-0.5b|...        what to train (tiny: generated, runs on a CPU); see conf/model/
  task=arithmetic|gsm8k                           what to train it on; see conf/task/
  schedule=constant|cosine                        the learning rate over the steps; see conf/schedule/
  cluster=local|ray  cluster.slots=N              where, and how many trials at once
  campaign=NAME                                   everything goes to runs/NAME/ (the model's name)
  earlier=NAME                                    another campaign, whose finished trials count here where equal
  budget.steps=N  budget.seeds=N                  training steps a trial, seeds an arm
  plan=true                                       print trials, hours and GPU-hours to come; start nothing
  budget.gpu_hours=N                              stop, to be continued, when so many are spent
  engine=verl|rehearsal                           real trials, or simulated ones in seconds
  'verl=["trainer.test_freq=50"]'                 further verl settings
  stages.STAGE.KEY=VALUE                          any constant of sweeps/STAGE.yaml

  --cfg       print the whole configuration and stop
  --version   print the version and stop
  --help      print this and stop

exit codes: 0 done, 1 bug or broken environment, 2 configuration, 3 halted by a rule, 4 done but trials failed,
  5 budget.gpu_hours spent: more of them go on
see also: python -m sweep.freeze, sweep.preflight, sweep.diagnose, sweep.doctor (each with --help)
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with the first one ignored
        signal.signal(number, _interrupt)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """The exit code of the command line; one clear message on standard error unless it is 0."""
    try:
        return _run(arguments)
    except BudgetSpent as error:
        print(f"sweep: {error}; finished trials are kept, go on with: {_with_more(arguments, error)}", file=sys.stderr)
        return error.exit_code
    except SweepError as error:
        print(f"sweep: {_shown(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        again = _command(arguments)
        print(f"sweep: interrupted; finished trials are kept, go on with: {again}", file=sys.stderr)
        return INTERRUPTED


def _shown(text: str) -> str:
    """The text as a log may keep it."""
    from sweep.adapters.redaction import scrubbed

    return scrubbed(text)


def _command(arguments: Sequence[str]) -> str:
    """The command line to be pasted into a shell, without its secrets."""
    return _shown(" ".join(["python -m sweep", *map(shlex.quote, arguments)]))


def _with_more(arguments: Sequence[str], error: BudgetSpent) -> str:
    """The same command with twice of what is spent, or of the budget where that is more."""
    key = "budget.gpu_hours="
    return _command([*(a for a in arguments if not a.startswith(key)), f"{key}{2 * max(error.limit, error.spent):.3g}"])


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal ends politely; a second one at once, by the system's own means."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _run(arguments: Sequence[str]) -> int:
    from sweep.report.progress import say

    flags = [a for a in arguments if a.startswith("-")]
    overrides = [a for a in arguments if not a.startswith("-")]
    if {"--help", "-h"} & set(flags):
        say(HELP)
        return DONE
    if "--version" in flags:
        from sweep import __version__

        say(__version__)
        return DONE
    if {"-m", "--multirun"} & set(flags):
        raise ConfigError(
            "-m would start a second driver for each value; a campaign already tries several: "
            "list the values in sweeps/, or run campaigns of different names one after the other"
        )
    unknown = [f for f in flags if f != "--cfg"]
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]}; known: --cfg, --version, --help, and KEY=VALUE settings")
    return _campaign(overrides, only_print="--cfg" in flags)


def _campaign(overrides: Sequence[str], *, only_print: bool) -> int:
    from sweep.config import as_mapping, compose, to_plan
    from sweep.report.progress import say

    config = compose(overrides)
    plan = replace(to_plan(config), asked=tuple(overrides))
    if only_print:
        import yaml

        say(_shown(yaml.safe_dump(as_mapping(config), sort_keys=False, allow_unicode=True)))
        return DONE
    from sweep import wiring

    if config.plan:
        say(wiring.price(plan))
        return DONE
    return TRIALS_FAILED if wiring.run_campaign(config, plan) else DONE
