"""`evidence`: the part of vLLM's console that says what happened."""

from __future__ import annotations

import re

WARNING = re.compile(r"^(\([^)]*\) )?WARNING \d\d-\d\d ")
"""A line of vLLM's logger at that level. Source: vLLM 0.24.0 logger.py."""


def evidence(console: str) -> str:
    """The console without warnings: vLLM warns of errors, naming them, that then do not happen (as with ulimit)."""
    return "\n".join(line for line in console.splitlines() if not WARNING.match(line))
