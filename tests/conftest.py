"""For all tests: an example of a property may take as long as a busy machine needs for it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
