"""`sweep.adapters.storage`: what opens, what refuses and how, and patience with a faulty database."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy as sa
from optuna.exceptions import StorageInternalError

from sweep.adapters.optuna_store import campaigns, engine_of
from sweep.adapters.redaction import redacted, scrubbed, without_secrets
from sweep.adapters.storage import (
    open_engine,
    open_storage,
    patiently,
    sqlite_path,
    storage_warning,
    with_driver,
)
from sweep.core.plan import storage_file
from sweep.errors import StoreError


def test_a_new_file_is_made_with_its_folders_and_writes_ahead(tmp_path: Path) -> None:
    url = storage_file(tmp_path / "runs" / "a1")
    storage = open_storage(url)
    assert storage.get_all_studies() == []
    with sqlite3.connect(tmp_path / "runs" / "a1" / "optuna.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("opened", [open_storage, open_engine])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hush@127.0.0.1:9/x?password=hush2", "check host, port"),
        ("postgresql+pg8000://u:hush@h/x", "needs the Python package pg8000"),
        ("oracle9://u:hush@h/x", "Can't load plugin"),
        ("u:hush@h/x", "special characters in a password as %XX"),
        ("postgresql://u:hu/sh@h/x", "cannot be opened|not a database URL"),
        ("sqlite://", "would lose every trial"),
        ("sqlite:///:memory:", "would lose every trial"),
        ("sqlite:////proc/x/optuna.db", "writable folder"),
    ],
)
def test_a_url_that_cannot_be_opened_is_one_message_without_its_secrets(opened: object, url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        opened(url)  # type: ignore[operator]
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "optuna.db").write_text("this is a text file, and a long one" * 100)
    with pytest.raises(
        StoreError,
        match=r"optuna\.db cannot be opened: file is not a database; put a copy back .* or move optuna\.db away",
    ):
        open_storage(f"sqlite:///{tmp_path}/optuna.db")


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened: unable to open database file"):
        open_storage(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:hush@h:5432/d", "postgresql://ann:***@h:5432/d"),
        ("postgresql://h/d?sslpassword=hush&sslmode=require", "postgresql://h/d?sslmode=require&sslpassword=***"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("http://ann:hush@h/x", "http://ann:***@h/x"),
        ("strange:hush", "***"),
        ("strange://ann:hush:word:@@", "strange://ann:***@@"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    seen = redacted(url)
    assert "hush" not in seen
    assert seen == shown or set(seen.split("?")[-1].split("&")) == set(shown.split("?")[-1].split("&"))


def test_a_configuration_is_shown_without_its_secrets_and_otherwise_whole() -> None:
    content = {
        "storage": "postgresql://u:hush@h/d",
        "hf_token": "hush",
        "nested": [{"api_key": "hush", "tokenizer": "t", "max_tokens": 5, "password": None}],
        "path": "hdfs://host/data",
    }
    assert without_secrets(content) == {
        "storage": "postgresql://u:***@h/d",
        "hf_token": "***",
        "nested": [{"api_key": "***", "tokenizer": "t", "max_tokens": 5, "password": None}],
        "path": "hdfs://host/data",
    }


@pytest.mark.parametrize(
    ("url", "completed"),
    [
        ("postgresql://h/d", "postgresql+psycopg2://h/d"),
        ("postgres://h/d", "postgresql+psycopg2://h/d"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("", ""),
    ],
)
def test_postgresql_gets_the_driver_that_is_installed(url: str, completed: str) -> None:
    assert with_driver(url) == completed


@pytest.mark.parametrize(
    ("path", "risky"),
    [("/nfs/team/sweep.db", True), ("/nfs2/sweep.db", False), ("/home/sweep.db", False), ("/nfs/local/x.db", False)],
)
def test_sqlite_on_a_network_file_system_is_warned_about(tmp_path: Path, path: str, risky: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nfiler:/team /nfs nfs4 rw 0 0\n/dev/sdb /nfs/local xfs rw 0 0\n")
    said = storage_warning(f"sqlite:///{path}", mounts)
    assert (said is not None) is risky
    if said:
        assert "nfs4" in said and "postgresql" in said
    assert storage_warning("postgresql://h/d", mounts) is None


def test_a_relative_file_is_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path("sqlite:///runs/a.db") == tmp_path / "runs" / "a.db"


def test_a_fault_is_waited_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    left = [3]

    def sometimes() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise sa.exc.OperationalError(
                "select secret", {"p": "hush"}, sqlite3.OperationalError("database is locked")
            )
        return "done"

    with caplog.at_level(logging.WARNING):
        assert patiently(sometimes, "write a trial") == "done"
    assert [r.getMessage() for r in caplog.records] == [
        "storage fault, the campaign waits (write a trial): database is locked"
    ]


def test_a_fault_that_stays_ends_in_a_message_that_says_what_to_do() -> None:
    def never() -> None:
        raise sa.exc.OperationalError("select secret", {"p": "hush"}, sqlite3.OperationalError("disk is full"))

    with pytest.raises(StoreError, match=r"cannot write a trial: .*disk is full.*run the same command again") as caught:
        patiently(never, "write a trial", patience_seconds=0.3)
    assert "secret" not in str(caught.value) and "hush" not in str(caught.value)


def test_an_error_of_ours_is_not_waited_out() -> None:
    def wrong() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        patiently(wrong, "write")


def test_two_campaigns_can_make_one_new_database_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def make() -> None:
        start.wait()
        try:
            open_storage(f"sqlite:///{tmp_path}/shared.db")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_refusal_at_once_because_two_would_wait_for_each_other_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """As SQLite refuses, without its own waiting, one of two connections that both turn to write-ahead logging."""
    left = [sqlite3.OperationalError("database is locked")] * refusals
    connect = sqlite3.connect

    def refusing(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        if left:
            raise left.pop()
        return connect(*arguments, **keywords)

    monkeypatch.setattr("sqlite3.connect", refusing)
    open_storage(f"sqlite:///{tmp_path}/optuna.db")
    assert left == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sweep storage=postgresql://me:pw@db:5/x stage=kl", "sweep storage=postgresql://me:***@db:5/x stage=kl"),
        ("http://ml?token=abc&run=1", "http://ml?token=***&run=1"),
        ("+api.hf_token=abc trainer.n=1", "+api.hf_token=*** trainer.n=1"),
        ("max_num_batched_tokens=512 tokenizer=x", "max_num_batched_tokens=512 tokenizer=x"),
        ("sqlite:////runs/a1/optuna.db at 10.0.0.1:6379", "sqlite:////runs/a1/optuna.db at 10.0.0.1:6379"),
    ],
)  # fmt: skip
def test_any_text_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert scrubbed(text) == shown


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage with a study in a folder that nobody may write to, as of a file system mounted to read only."""
    path = tmp_path / "a b" / "optuna.db"
    storage = open_storage(f"sqlite:///{path}")
    storage.create_new_study([optuna.study.StudyDirection.MAXIMIZE], "a1/kl")
    storage.remove_session()
    storage.engine.dispose()
    path.with_name(".optuna.db.lock").unlink()
    monkeypatch.setattr("sweep.adapters.storage._is_writable", lambda _: False)
    return path


def test_what_cannot_be_written_is_read_and_neither_written_nor_locked(unwritable: Path) -> None:
    before = unwritable.read_bytes()
    storage = open_storage(f"sqlite:///{unwritable}", reader=True)
    assert [s.study_name for s in storage.get_all_studies()] == ["a1/kl"]
    with pytest.raises(StorageInternalError):
        storage.create_new_study([optuna.study.StudyDirection.MAXIMIZE], "a1/more")
    storage.remove_session()
    storage.engine.dispose()
    assert unwritable.read_bytes() == before
    assert not unwritable.with_name(".optuna.db.lock").exists()


def test_campaigns_and_their_engine_are_read_where_nothing_can_be_written(unwritable: Path) -> None:
    assert campaigns(f"sqlite:///{unwritable}") == ("a1",)
    assert engine_of(f"sqlite:///{unwritable}", "a1") is None
    assert not unwritable.with_name(".optuna.db.lock").exists()


def test_a_file_without_a_campaign_that_cannot_be_written_is_named(unwritable: Path) -> None:
    sqlite3.connect(unwritable.with_name("other.db")).close()
    unwritable.with_name("other.db").touch()
    with pytest.raises(
        StoreError, match=r"other\.db cannot be read: no such table: studies; give the storage of a camp"
    ):
        open_storage(f"sqlite:///{unwritable.with_name('other.db')}", reader=True)
