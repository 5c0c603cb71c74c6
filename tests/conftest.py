"""For all tests: an example of a property may take as long as a busy machine needs for it; two workers share the files,
and those that need the warm verl go to one of them, first, so that it is started once."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

WARM = "warm_verl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the files for `--dist loadgroup`: each stays whole on one worker."""
    warm = {item.path for item in items if WARM in getattr(item, "fixturenames", ())}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(WARM if item.path in warm else str(item.path)))
    items.sort(key=lambda item: item.path not in warm)
