"""One warm verl for all tests of this folder: a start costs most of a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.ray_launcher import RayLauncher
from tests.engines.verl.live_verl import LiveVerl


@pytest.fixture(scope="package")
def warm_verl(
    launcher: RayLauncher, world: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveVerl]:
    folder: Path = tmp_path_factory.mktemp("warm")
    verl = LiveVerl(launcher, folder, world, reuse=True, seed=1, steps=3)
    verl.ready()
    yield verl
    verl.close()
