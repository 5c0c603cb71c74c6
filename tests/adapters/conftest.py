"""A PostgreSQL server for the tests that want one; they skip aloud where it cannot be started."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

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
    """The URL of an empty database: SWEEP_TEST_POSTGRES if set, otherwise on a server started here."""
    given = os.environ.get("SWEEP_TEST_POSTGRES")
    return given or str(request.getfixturevalue("postgres_server").new_database())
