"""For all tests: an example of a property may take as long as a busy machine needs for it; one Ray cluster a process;
workers share the files, and the folder whose tests share one loaded verl goes to one of them, first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from sweep.adapters.ray_launcher import ClusterSettings, RayLauncher

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

WARM = "tests/engines/verl/warm/"


@pytest.fixture(scope="session")
def launcher() -> Iterator[RayLauncher]:
    """Opened on first use; a process can have no second cluster. It claims room for two verl without GPUs."""
    found = RayLauncher(ClusterSettings.without_gpus(2))
    yield found
    found.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `WARM` first: they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(WARM))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file to one worker, as `--dist loadfile` does, and those of `WARM` to the same."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return WARM if nodeid.startswith(WARM) else nodeid.partition("::")[0]

    return Scheduling(config, log)
