"""`python -m sweep.ui campaign=NAME`: serves a campaign's MLflow, or its Optuna studies, on this machine alone.

`view=mlflow|optuna`, `port=N` (5000), `runs=FOLDER`, `host=ADDRESS` (127.0.0.1: nobody else can connect).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sweep.errors import ConfigError, SweepError
from sweep.report.progress import say

OPTIONS = {"campaign": "", "runs": "runs", "view": "mlflow", "host": "127.0.0.1", "port": "5000"}
MOST_PORT = 65535
DATABASES = {"mlflow": "mlflow.db", "optuna": "optuna.db"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by the server."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(given):
        say(f"usage: python -m sweep.ui campaign=NAME\n\n{__doc__}")
        return 0
    try:
        command = server_command(given)
    except SweepError as error:
        print(f"sweep.ui: {error}", file=sys.stderr)
        return error.exit_code
    say(f"serving {' '.join(command[1:])}")
    os.execv(command[0], command)


def server_command(arguments: Sequence[str]) -> list[str]:
    """The server's command line.

    Raises:
        ConfigError: for an unknown option or view, or a campaign without that database.
    """
    options = dict(OPTIONS)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or key not in OPTIONS:
            raise ConfigError(f"options are {', '.join(f'{k}=' for k in OPTIONS)}; got {argument!r}")
        options[key] = value
    view = options["view"]
    if view not in DATABASES:
        raise ConfigError(f"view must be one of {', '.join(DATABASES)}, got {view!r}")
    if not options["port"].isdecimal() or not 1 <= int(options["port"]) <= MOST_PORT:
        raise ConfigError(f"port must be a whole number from 1 to {MOST_PORT}, got {options['port']!r}")
    if not options["campaign"]:
        raise ConfigError(f"give campaign=NAME; campaigns in {options['runs']}: {_known(options['runs'], view)}")
    folder = Path(options["runs"]) / options["campaign"]
    database = folder / DATABASES[view]
    if not database.exists():
        raise ConfigError(f"there is no {database}; campaigns with one: {_known(options['runs'], view)}")
    url = f"sqlite:///{database.resolve()}"
    place = ["--host", options["host"], "--port", options["port"]]
    if view == "optuna":
        return [sys.executable, "-m", "optuna_dashboard._cli", url, *place]
    return [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", url, "--workers", "1", *place]


def _known(runs: str, view: str) -> str:
    """The campaigns that have the view's database."""
    return ", ".join(sorted(p.parent.name for p in Path(runs).glob(f"*/{DATABASES[view]}"))) or "none"


if __name__ == "__main__":
    sys.exit(main())
