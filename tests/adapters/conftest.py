"""A PostgreSQL server for the tests that want one; they skip aloud where it cannot be started."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from sweep.adapters.storage import with_driver
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except FileNotFoundError as error:
        pytest.skip(f"PostgreSQL not tested: {error}")
    yield server
    server.close()


@pytest.fixture
def postgres_database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: on the server of the URL in SWEEP_TEST_POSTGRES, otherwise on one started here."""
    given = os.environ.get("SWEEP_TEST_POSTGRES")
    return _new_database(given) if given else str(request.getfixturevalue("postgres_server").new_database())


def _new_database(url: str) -> str:
    name = f"sweep_test_{secrets.token_hex(6)}"
    engine = sa.create_engine(with_driver(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return engine.url.set(database=name).render_as_string(hide_password=False)
