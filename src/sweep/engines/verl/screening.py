"""`examine`: what preflight finds in a trial before anything is started: why verl could not run it, and warnings.

Remarks are left to `python -m sweep.preflight`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.compose import compose
from sweep.engines.verl.facts import Machine, gather, this_machine
from sweep.engines.verl.settings import EngineSettings, complete
from sweep.errors import ConfigError
from sweep.health.preflight import PreflightFinding, Severity, preflight
from sweep.health.preflight.limits import DEFAULT, PreflightLimits


@dataclass(frozen=True, slots=True)
class Examined:
    """`obstacle`: what stops the trial, each fault with the nearest value that works; empty if nothing does."""

    obstacle: str = ""
    warnings: tuple[str, ...] = ()


def examine(
    trial: Trial,
    folder: str,
    settings: EngineSettings,
    locate: Callable[[Overrides], Overrides],
    *,
    here: bool,
    swept: frozenset[str] = frozenset(),
    limits: PreflightLimits = DEFAULT,
) -> Examined:
    """`here`: the trial runs on this machine, so that its GPUs and CPUs count. `swept` are the verl keys whose values
    its stage compares: one that verl does not read is an error there. `limits` are preflight's thresholds."""
    overrides = locate(complete(trial, folder, settings, True))
    try:
        composed = compose(overrides)
    except ConfigError as error:
        return Examined(str(error))
    if composed.unknown:
        return Examined("; ".join(_unknown(u.key, u.suggestions) for u in composed.unknown))
    machine = this_machine() if here and not settings.on_cpu else Machine()
    facts = gather(composed, machine=machine, trial_steps=trial.steps, swept=swept, limits=limits)
    found = preflight(composed.config, facts)
    errors = [_said(f) for f in found if f.severity is Severity.ERROR]
    return Examined("; ".join(errors), tuple(_said(f) for f in found if f.severity is Severity.WARN))


def _said(finding: PreflightFinding) -> str:
    return finding.what + (f" (try {' or '.join(map(str, finding.nearest))})" if finding.nearest else "")


def _unknown(key: str, suggestions: tuple[str, ...]) -> str:
    near = f"; nearest: {', '.join(suggestions)}" if suggestions else ""
    return f"verl has no setting {key}{near}"
