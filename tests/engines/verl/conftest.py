"""One small world for all tests that need real verl."""

from __future__ import annotations

import pytest

from tests.engines.verl import small_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return small_world.settings(tmp_path_factory.mktemp("world"))
