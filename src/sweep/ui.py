"""`python -m sweep.ui campaign=NAME`: serves a campaign's MLflow, or its Optuna studies, on this machine alone.

`view=mlflow|optuna`, `port=N` (5000), `runs=FOLDER`, `host=ADDRESS` (127.0.0.1: nobody else can connect).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sweep.errors import ConfigError, SweepError

OPTIONS = {"campaign": "", "runs": "runs", "view": "mlflow", "host": "127.0.0.1", "port": "5000"}
DATABASES = {"mlflow": "mlflow.db", "optuna": "optuna.db"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by the server."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(given):
        print(f"usage: python -m sweep.ui campaign=NAME\n\n{__doc__}")
        return 0
    try:
        command = server_command(given)
    except SweepError as error:
        print(f"sweep.ui: {error}", file=sys.stderr)
        return error.exit_code
    print("serving", " ".join(command[1:]), flush=True)
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
    folder = Path(options["runs"]) / options["campaign"]
    database = folder / DATABASES[view]
    if not options["campaign"] or not database.exists():
        known = sorted(p.parent.name for p in Path(options["runs"]).glob(f"*/{DATABASES[view]}"))
        raise ConfigError(f"there is no {database}; campaigns with one: {', '.join(known) or 'none'}")
    url = f"sqlite:///{database.resolve()}"
    place = ["--host", options["host"], "--port", options["port"]]
    if view == "optuna":
        return [sys.executable, "-m", "optuna_dashboard._cli", url, *place]
    return [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", url, "--workers", "1", *place]


if __name__ == "__main__":
    sys.exit(main())
