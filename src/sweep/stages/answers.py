"""`checked`: what a rule of the user's returns, looked into before the loop does anything with it.

The loop trusts a decision: one of the wrong content would end it in the middle, and one that starts nothing while
nothing runs would be asked for again for ever.
"""

from __future__ import annotations

from typing import Any

from sweep.core.decision import Decision, Freeze, Halt, Launch, Wait
from sweep.core.overrides import Overrides
from sweep.core.progress import Progress, Proposal
from sweep.core.winner import Choice, Ratio, Score
from sweep.errors import ConfigError

FIELDS: dict[type, dict[str, Any]] = {
    Launch: {"proposals": (tuple, list)},
    Proposal: {"settings": Overrides, "seed": int, "requested": Overrides, "note": str},
    Freeze: {"choice": Choice},
    Choice: {
        "settings": Overrides,
        "requested": Overrides,
        "score": Score,
        "baseline_score": Score,
        "trial_ids": tuple,
        "reason": str,
        "notes": tuple,
        "ratio": (Ratio, type(None)),
    },
    Score: {"value": (int, float), "standard_error": (int, float), "parts": tuple},
    Halt: {"reason": str},
    Wait: {},
}
"""What the fields of a decision, and of what it holds, must be."""


def checked(where: str, progress: Progress, decision: object) -> Decision:
    """The decision; `where` names stage and rule.

    Raises:
        ConfigError: if it is none that such a rule can make, holds something else than it must, asks for nothing new,
            or waits although nothing runs.
    """
    match decision:
        case Launch():
            _look_into(where, decision)
            _check_launch(where, progress, decision)
        case Wait():
            if not progress.running:
                raise ConfigError(f"{where} returned Wait(), but no trial is running; return Launch, Freeze or Halt")
        case Freeze():
            _look_into(where, decision)
        case Halt():
            _look_into(where, decision)
        case _:
            raise ConfigError(
                f"{where} must return one of sweep.core.decision's decisions, Launch, Wait, Freeze or Halt, "
                f"got {decision!r}"
            )
    return decision


def _check_launch(where: str, progress: Progress, launch: Launch) -> None:
    if not launch.proposals:
        raise ConfigError(f"{where} returned a Launch without proposals; return Wait() until a running trial ends")
    for proposal in launch.proposals:
        _check(where, "Launch.proposals", Proposal, proposal)
        _look_into(where, proposal)
    ended = [p for p in launch.proposals if _has_ended(progress, p)]
    if len(ended) == len(launch.proposals):
        asked = f"{ended[0].settings.to_json() or 'the baseline'} with seed {ended[0].seed}"
        raise ConfigError(f"{where} asks again for {asked}, which has ended; its record is in progress.records")


def _has_ended(progress: Progress, proposal: Proposal) -> bool:
    runs = [r for r in progress.arm(proposal.settings) if r.trial.seed == proposal.seed]
    return any(r.outcome is not None for r in runs)


def _look_into(where: str, held: object) -> None:
    """Raises: ConfigError: if a field of the value, or of one that it holds, is of another type than it must be."""
    kind = type(held)
    for name, wanted in FIELDS[kind].items():
        value = getattr(held, name)
        _check(where, f"{kind.__name__}.{name}", wanted, value)
        if type(value) in FIELDS:
            _look_into(where, value)
    if isinstance(held, Choice):
        for name in ("trial_ids", "notes"):
            for entry in getattr(held, name):
                _check(where, f"Choice.{name}", str, entry)


def _check(where: str, name: str, wanted: Any, value: object) -> None:
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        words = " or ".join(k.__name__ for k in kinds if k is not type(None))
        raise ConfigError(f"{where}: {name} must hold {words}, got {value!r}")
