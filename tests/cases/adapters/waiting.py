"""`Waiting`: raised by an adapter whose part of the product does not exist yet; the case is then listed as waiting."""

from __future__ import annotations


class Waiting(Exception):
    """The message says what is missing."""
