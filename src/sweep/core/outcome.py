"""`Outcome`: how a trial ended. Only `Finished` can be scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sweep.core.curve import Curve
from sweep.core.failure import FailureClass, Retry


@dataclass(frozen=True, slots=True)
class Finished:
    """The trial reached its last step; `wall_seconds` runs from its start to its end, engine start-up excluded.

    `machine` is the kind of machine that it ran on, empty if nobody knows any more.
    """

    curve: Curve
    wall_seconds: float = 0.0
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Diverged:
    """Training went wrong by the trial's own settings (NaN, explosion, collapse): a result, but not a score.

    `given_up`: nothing went wrong, but the trial was certain to lose and was stopped for that.
    """

    curve: Curve
    reason: str
    wall_seconds: float = 0.0
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The trial ended early for a reason outside training; `failure_class` says whether a retry makes sense.

    `fix`, `retry` and `abort` are what the doctor advises (`Cause`).
    """

    failure_class: FailureClass
    message: str
    last_step: int = 0
    log_path: str = ""
    wall_seconds: float = 0.0
    fix: tuple[str, ...] = ()
    retry: Retry | None = None
    abort: bool = False

    @property
    def said(self) -> str:
        """The message and what would help."""
        return f"{self.message}; try: {'; or '.join(self.fix)}" if self.fix else self.message


Outcome: TypeAlias = Finished | Diverged | Failed


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain JSON types, tagged by `kind`."""
    match outcome:
        case Finished(curve, wall, machine):
            content = {"kind": "finished", "curve": curve.to_json(), "wall_seconds": wall}
            return {**content, "machine": machine} if machine else content
        case Diverged(curve, reason, wall, given_up):
            content = {"kind": "diverged", "curve": curve.to_json(), "reason": reason, "wall_seconds": wall}
            return {**content, "given_up": True} if given_up else content
        case Failed(failure_class, message, last_step, log_path, wall, fix, retry, abort):
            content = {
                "kind": "failed",
                "failure_class": failure_class.value,
                "message": message,
                "last_step": last_step,
                "log_path": log_path,
                "wall_seconds": wall,
            }
            advice = {"fix": list(fix), "retry": retry.name if retry else None, "abort": abort}
            return content | {name: value for name, value in advice.items() if value}


def from_json(content: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_json` described."""
    wall = float(content.get("wall_seconds", 0.0))
    match content["kind"]:
        case "finished":
            return Finished(Curve.from_json(content["curve"]), wall, content.get("machine", ""))
        case "diverged":
            curve = Curve.from_json(content["curve"])
            return Diverged(curve, content["reason"], wall, bool(content.get("given_up", False)))
        case "failed":
            return Failed(
                FailureClass(content["failure_class"]),
                content["message"],
                int(content["last_step"]),
                content["log_path"],
                wall,
                tuple(content.get("fix", ())),
                Retry[content["retry"]] if "retry" in content else None,
                bool(content.get("abort", False)),
            )
        case other:
            raise ValueError(f"unknown outcome kind {other!r}; known: finished, diverged, failed")
