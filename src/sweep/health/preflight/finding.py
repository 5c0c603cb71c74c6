"""`PreflightFinding` and its `Severity`: what preflight reports about a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial


class Severity(Enum):
    """How bad a finding is, worst first; OK is never a finding's own, only the verdict on a clean configuration."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    OK = "ok"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One thing found in a configuration.

    `nearest` are values that would pass, best first, each as `key=value` where a single setting cures it;
    `computed` are the numbers behind the finding, by name.
    """

    code: str
    severity: Severity
    what: str
    why: str
    nearest: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    source: str = ""
    computed: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The finding as plain JSON types."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "what": self.what,
            "why": self.why,
            "nearest": list(self.nearest),
            "keys": list(self.keys),
            "source": self.source,
            "computed": dict(self.computed),
        }


def verdict(findings: Iterable[PreflightFinding]) -> Severity:
    """ERROR or WARN if any finding is; else OK, because an INFO asks for nothing."""
    worst = min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)
    return Severity.OK if worst is Severity.INFO else worst


def _make(
    severity: Severity,
    code: str,
    what: str,
    why: str,
    *,
    nearest: Iterable[str] = (),
    keys: Iterable[str] = (),
    source: str = "",
    computed: Mapping[str, object] | None = None,
) -> PreflightFinding:
    return PreflightFinding(code, severity, what, why, tuple(nearest), tuple(keys), source, computed or {})


error = partial(_make, Severity.ERROR)
"""A finding that stops a trial."""

warn = partial(_make, Severity.WARN)
"""A finding that lets a trial start and may spoil its result."""

info = partial(_make, Severity.INFO)
"""A finding worth knowing that asks for nothing."""
