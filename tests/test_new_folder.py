"""A campaign's folder: made for a request that turns out impossible it goes, and nobody else's ever does."""

from __future__ import annotations

import pytest

from sweep.errors import ConfigError
from sweep.new_folder import NewFolder


def refuse(*files):
    def action():
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.touch()
        raise ConfigError("no")

    return action


def test_an_empty_folder_of_a_refused_campaign_goes(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(ConfigError):
        NewFolder(path).opened_with(lambda: (path.mkdir(), refuse()()))
    assert not path.exists()


def test_what_another_driver_wrote_meanwhile_stays(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(ConfigError):
        NewFolder(path).opened_with(refuse(path / "optuna.db"))
    assert (path / "optuna.db").exists()


def test_once_opened_all_of_it_goes_until_the_campaign_begins(tmp_path):
    path = tmp_path / "new"
    for begins in (False, True):
        folder = NewFolder(path)
        folder.opened_with(path.mkdir)
        (path / "optuna.db").touch()
        if begins:
            folder.begin()
        folder.drop_unless_begun()
        assert path.exists() == begins
        assert list(tmp_path.iterdir()) == ([path] if begins else [])


def test_a_folder_that_was_there_stays(tmp_path):
    folder = NewFolder(tmp_path)
    with pytest.raises(ConfigError):
        folder.opened_with(refuse())
    folder.drop_unless_begun()
    assert tmp_path.exists()
