"""`MIN_FREE_GIB`: the free memory that a trial must find on every device; the guards and their settings share it."""

from __future__ import annotations

MIN_FREE_GIB = 5.0
"""Source: S0 section 4.2."""
