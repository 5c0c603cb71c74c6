"""Answers for `orchestrator` cases; a kind that is missing in `KINDS` is listed as waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

OWNED = False

KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {}
