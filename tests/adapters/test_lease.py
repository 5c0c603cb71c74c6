"""`sweep.adapters.lease`: one driver a campaign, with real processes and real databases."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from sweep.adapters.lease import Holder, Lease
from sweep.adapters.storage import open_engine
from sweep.errors import StoreError

HOLD = """
import sys, time
from sweep.adapters.lease import Lease
lease = Lease.take(sys.argv[1], "a1")
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/optuna.db"


def elsewhere(token: str = "other") -> Holder:
    """A holder on a host whose processes cannot be seen from here."""
    return Holder(token, "node7", 4711, "100", "another boot pid:[1]")


def rows(url: str) -> list[tuple[str, str]]:
    with sa.create_engine(url).connect() as connection:
        return [(r.campaign, r.token) for r in connection.execute(sa.text("select campaign, token from sweep_lease"))]


def test_a_living_process_keeps_its_campaign_and_the_refusal_names_it_and_ways_out(url: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(StoreError) as refused:
            Lease.take(url, "a1", stale_seconds=0.0)
        said = str(refused.value)
        assert f"process {process.pid} on " in said
        assert f"kill {process.pid}" in said and "campaign=NAME" in said
        Lease.take(url, "a2").release()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_process_that_was_killed_loses_its_campaign_at_once(url: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    process.kill()
    process.wait()
    process.stdout.close()
    Lease.take(url, "a1").release()


def test_a_number_that_another_process_got_meanwhile_is_not_the_holder(url: str) -> None:
    me = Holder.this_process()
    Lease.take(url, "a1", holder=replace(me, token="before", started="1"), beat_seconds=600)
    lease = Lease.take(url, "a1")
    lease.check()
    lease.release()


def test_a_holder_of_another_host_is_respected_while_it_beats_and_not_after(url: str) -> None:
    theirs = Lease.take(url, "a1", holder=elsewhere(), beat_seconds=0.2)
    with pytest.raises(StoreError, match=r"process 4711 on node7 .* run again in 3 s"):
        Lease.take(url, "a1", stale_seconds=3.0)
    time.sleep(4.0)
    with pytest.raises(StoreError, match="already driven"):
        Lease.take(url, "a1", stale_seconds=3.0)
    theirs._stop.set()  # its host is gone: no more beats, no release
    theirs._thread.join()
    deadline = time.monotonic() + 30
    while True:
        try:
            mine = Lease.take(url, "a1", stale_seconds=3.0)
            break
        except StoreError:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    mine.check()
    with pytest.raises(StoreError, match=r"taken over by process \d+ on .* finished trials are kept"):
        theirs.check()
    mine.release()


def test_a_driver_that_lost_its_campaign_does_not_free_it_for_others_on_its_way_out(url: str) -> None:
    lost = Lease.take(url, "a1", holder=elsewhere(), beat_seconds=600)
    mine = Lease.take(url, "a1", stale_seconds=-1.0)
    lost.release()
    mine.check()
    assert len(rows(url)) == 1
    mine.release()
    mine.release()
    assert rows(url) == []


def test_a_lease_whose_database_is_gone_is_let_go_without_a_word_and_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "a1"
    for made_anew in (False, True):
        lease = Lease.take(f"sqlite:///{folder}/optuna.db", "a1")
        lease._engine.dispose()  # with no connection left to the file that is gone
        shutil.rmtree(folder)
        if made_anew:
            theirs = Lease.take(f"sqlite:///{folder}/optuna.db", "a1", holder=elsewhere())
        lease.release()
        assert folder.exists() == made_anew
    theirs.check()
    theirs.release()


def test_a_removed_lease_counts_as_lost(url: str) -> None:
    lease = Lease.take(url, "a1")
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("delete from sweep_lease"))
    with pytest.raises(StoreError, match="removed the lease"):
        lease.check()
    lease.release()


@pytest.mark.parametrize("abandoned", [False, True])
def test_of_many_that_try_at_once_exactly_one_gets_the_campaign(url: str, abandoned: bool) -> None:
    if abandoned:
        Lease.take(url, "a1", holder=elsewhere(), beat_seconds=600)
    _race(url)


@pytest.mark.slow
def test_of_many_that_try_at_once_on_postgresql_exactly_one_gets_the_campaign(postgres_database: str) -> None:
    _race(postgres_database)


def _race(url: str) -> None:
    won: list[Lease] = []
    refused: list[StoreError] = []
    start = threading.Barrier(6)

    def contend(number: int) -> None:
        start.wait()
        try:
            won.append(Lease.take(url, "a1", holder=elsewhere(f"t{number}")))
        except StoreError as error:
            refused.append(error)

    with open_engine(url).begin() as connection:
        if sa.inspect(connection).has_table("sweep_lease"):
            connection.execute(sa.text("update sweep_lease set beat_at = '2000-01-01 00:00:00'"))
    threads = [threading.Thread(target=contend, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 5)
    won[0].check()
    won[0].release()


@pytest.mark.slow
def test_the_beat_survives_a_restart_of_the_server(
    postgres_server: object, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.postgres_server import PostgresServer

    assert isinstance(postgres_server, PostgresServer)
    lease = Lease.take(postgres_database, "a1", holder=elsewhere(), beat_seconds=0.2)
    postgres_server.stop()
    time.sleep(1.0)
    postgres_server.start()
    time.sleep(2.0)
    lease.check()
    with pytest.raises(StoreError, match="already driven"):
        Lease.take(postgres_database, "a1", stale_seconds=1.5)
    lease.release()


def test_a_holder_of_this_process_lives_and_one_of_another_boot_cannot_be_seen() -> None:
    me = Holder.this_process()
    assert me.lives() is True
    assert replace(me, started="1").lives() is False
    assert replace(me, pid=2**22 + 1).lives() is False
    assert elsewhere().lives() is None
    assert replace(me, space="").lives() is None
