"""`Lease`: one driver a campaign, on one host and across hosts.

The holder is a row in the campaign's database that a background thread renews. Another process on the holder's host
is refused while the holder's process lives, on another host while the row is fresh. Time is the database's clock, so
hosts need not agree on theirs.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.adapters.redaction import redacted
from sweep.adapters.storage import open_engine, patiently
from sweep.errors import StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa

BEAT_SECONDS = 10.0
"""How often the holder renews its row. Ours."""

STALE_SECONDS = 60.0
"""Age at which a row of another host counts as abandoned. Ours: six missed beats outlast a server's restart."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: a process by number and start, in a process space that `space` identifies."""

    token: str
    host: str
    pid: int
    started: str
    space: str

    @classmethod
    def this_process(cls) -> Holder:
        """This process under a fresh token."""
        pid = os.getpid()
        return cls(secrets.token_hex(8), socket.gethostname(), pid, _process_start(pid), _process_space())

    def lives(self) -> bool | None:
        """Whether the process runs; None if it cannot be seen from here."""
        if not self.space or self.space != _process_space():
            return None
        return _process_start(self.pid) == self.started


class Lease:
    """A campaign held by this process until `release`. Made by `Lease.take`."""

    def __init__(self, engine: sa.Engine, table: sa.Table, campaign: str, holder: Holder, beat_seconds: float) -> None:
        self._engine, self._table, self._campaign, self._holder = engine, table, campaign, holder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(beat_seconds,), name="sweep-lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls,
        url: str,
        campaign: str,
        *,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        holder: Holder | None = None,
    ) -> Lease:
        """The campaign's lease, new or taken over from a holder that is gone.

        Raises:
            StoreError: if another driver holds it, naming host and process, or if the storage cannot be opened.
        """
        engine = open_engine(url)
        table = _lease_table()
        me = holder or Holder.this_process()
        try:
            patiently(lambda: _make(engine, table), "make the lease table")
            other = patiently(lambda: _seize(engine, table, campaign, me, stale_seconds), "take the campaign's lease")
            if other is not None:
                raise StoreError(_refusal(campaign, other, stale_seconds, redacted(url)))
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, table, campaign, me, beat_seconds)

    def check(self) -> None:
        """Returns only if this process still holds the campaign.

        Raises:
            StoreError: if another driver took it over while this one was out of touch.
        """
        found = patiently(lambda: _read(self._engine, self._table, self._campaign), "check the campaign's lease")
        if found is None or found[0].token != self._holder.token:
            by = f"process {found[0].pid} on {found[0].host}" if found else "somebody who removed the lease"
            raise StoreError(
                f"campaign {self._campaign} was taken over by {by} while this driver was out of touch; this driver "
                "stops, finished trials are kept"
            )

    def release(self) -> None:
        """Let the campaign go at once; a lease that another driver took over stays theirs. Safe to call again."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        mine = (self._table.c.campaign == self._campaign) & (self._table.c.token == self._holder.token)
        try:
            with self._engine.begin() as connection:
                connection.execute(self._table.delete().where(mine))
        except _database_errors():
            pass  # the row goes stale by itself
        self._engine.dispose()

    def _beat(self, beat_seconds: float) -> None:
        import sqlalchemy as sa

        mine = (self._table.c.campaign == self._campaign) & (self._table.c.token == self._holder.token)
        renewal = self._table.update().where(mine).values(beat_at=sa.func.current_timestamp())
        while not self._stop.wait(beat_seconds):
            try:
                with self._engine.begin() as connection:
                    connection.execute(renewal)
            except _database_errors():
                continue  # `check` tells the driver if the lease was lost meanwhile


def _lease_table() -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        "sweep_lease",
        sa.MetaData(),
        sa.Column("campaign", sa.String(200), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started", sa.String(64), nullable=False),
        sa.Column("space", sa.String(255), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
    )


def _make(engine: sa.Engine, table: sa.Table) -> None:
    """The table exists, whoever made it."""
    import sqlalchemy as sa

    try:
        table.create(engine, checkfirst=True)
    except (sa.exc.ProgrammingError, sa.exc.IntegrityError, sa.exc.OperationalError):
        if not sa.inspect(engine).has_table(table.name):
            raise


def _read(engine: sa.Engine, table: sa.Table, campaign: str) -> tuple[Holder, float] | None:
    """The present holder and the age of its last beat in seconds, by the database's clock."""
    import sqlalchemy as sa

    now = sa.type_coerce(sa.func.current_timestamp(), sa.DateTime(timezone=True))
    with engine.connect() as connection:
        row = connection.execute(sa.select(table, now.label("now")).where(table.c.campaign == campaign)).first()
    if row is None:
        return None
    holder = Holder(row.token, row.host, row.pid, row.started, row.space)
    return holder, (row.now - row.beat_at).total_seconds()


def _seize(engine: sa.Engine, table: sa.Table, campaign: str, me: Holder, stale_seconds: float) -> Holder | None:
    """None if the row is mine now, otherwise its live holder. Of two that try at once exactly one gets None."""
    import sqlalchemy as sa

    values = {
        "token": me.token, "host": me.host, "pid": me.pid, "started": me.started, "space": me.space,
        "beat_at": sa.func.current_timestamp(),
    }  # fmt: skip
    found = _read(engine, table, campaign)
    if found is None:
        try:
            with engine.begin() as connection:
                connection.execute(table.insert().values(campaign=campaign, **values))
            return None
        except sa.exc.IntegrityError:
            found = _read(engine, table, campaign)
            if found is None:
                return _seize(engine, table, campaign, me, stale_seconds)
    holder, age_seconds = found
    alive = holder.lives()
    if holder.token == me.token:
        return None
    if alive or (alive is None and age_seconds < stale_seconds):
        return holder
    unchanged = (table.c.campaign == campaign) & (table.c.token == holder.token)
    with engine.begin() as connection:
        taken = connection.execute(table.update().where(unchanged).values(**values)).rowcount
    if taken:
        return None
    after = _read(engine, table, campaign)
    return after[0] if after and after[0].token != me.token else None


def _refusal(campaign: str, holder: Holder, stale_seconds: float, url: str) -> str:
    here = holder.lives()
    way_out = (
        f"wait for it or end it (kill {holder.pid})"
        if here
        else f"end it there; if that host is gone, run again in {stale_seconds:.0f} s"
    )
    return (
        f"campaign {campaign} is already driven by process {holder.pid} on {holder.host} (lease in {url}); {way_out}, "
        "or choose another campaign=NAME"
    )


def _process_start(pid: int) -> str:
    """The process's start in kernel ticks since boot; empty if there is no such process or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _process_space() -> str:
    """Equal for two processes exactly if they see each other's numbers: same boot, same pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _database_errors() -> tuple[type[Exception], ...]:
    import sqlalchemy as sa

    return (sa.exc.SQLAlchemyError,)
