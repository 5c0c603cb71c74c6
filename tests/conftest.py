"""For all tests: an example of a property may take as long as a busy machine needs for it; two workers share the files,
and those that need the warm verl go to one of them, first, so that it is started once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

WARM = "warm_verl"
WARM_FILES = frozenset(
    f"tests/engines/verl/test_{name}.py" for name in ("guards", "reset_parts", "training", "warm_trials")
)
"""All whose tests need that fixture."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `WARM_FILES` first."""
    for item in items:
        needs = WARM in getattr(item, "fixturenames", ())
        assert not needs or file_of(item.nodeid) in WARM_FILES, f"{item.nodeid} belongs to WARM_FILES"
    items.sort(key=lambda item: file_of(item.nodeid) not in WARM_FILES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file to one worker, as `--dist loadfile` does, and `WARM_FILES` to the same."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            return WARM if file in WARM_FILES else file

    return Scheduling(config, log)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
