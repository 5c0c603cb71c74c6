"""One cluster, one small world and one warm verl for all tests that need real verl: a start costs most of a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher
from tests.engines.verl import small_world
from tests.engines.verl.live_verl import LiveVerl


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return small_world.settings(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def launcher() -> Iterator[RayLauncher]:
    opened = RayLauncher(ClusterSettings.without_gpus(2))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def warm_verl(
    launcher: RayLauncher, world: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveVerl]:
    folder: Path = tmp_path_factory.mktemp("warm")
    verl = LiveVerl(launcher, folder, world, reuse=True, seed=1, steps=3)
    verl.ready()
    yield verl
    verl.close()
