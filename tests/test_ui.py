"""`python -m sweep.ui`: the right server on loopback, or a clear refusal."""

from __future__ import annotations

import pytest

from sweep.errors import ConfigError
from sweep.ui import main, server_command


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "mlflow.db").touch()
    (tmp_path / "first" / "optuna.db").touch()
    return tmp_path


def test_mlflow_is_served_on_loopback_unless_asked(runs):
    command = server_command(["campaign=first", f"runs={runs}"])
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--backend-store-uri") + 1] == f"sqlite:///{runs}/first/mlflow.db"


def test_optunas_dashboard_is_another_view(runs):
    command = server_command(["campaign=first", f"runs={runs}", "view=optuna", "port=8080"])
    assert command[-1] == "8080"
    assert f"sqlite:///{runs}/first/optuna.db" in command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["campaign=second"], "campaigns with one: first"),
        ([], "give campaign=NAME; campaigns in .*: first"),
        (["campaign=first", "port=x"], "port must be a whole number from 1 to 65535, got 'x'"),
        (["campaign=first", "port=0"], "from 1 to 65535, got '0'"),
        (["campaign=first", "port=65536"], "from 1 to 65535, got '65536'"),
        (["campaign=first", "view=tensorboard"], "view must be one of mlflow, optuna, got 'tensorboard'"),
        (["first"], "options are campaign="),
    ],
)
def test_what_cannot_be_served_is_said(runs, arguments, says):
    with pytest.raises(ConfigError, match=says):
        server_command([*arguments, f"runs={runs}"])


def test_help_and_refusal_have_their_exit_codes(capsys):
    assert main(["--help"]) == 0
    assert main(["nonsense"]) == 2
    assert "options are" in capsys.readouterr().err
