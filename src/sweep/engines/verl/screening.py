"""`obstacle`: why verl could not run a trial, found before anything is started; the preflight a campaign makes.

Findings that are errors stop a trial, warnings and remarks do not: `python -m sweep.preflight` shows those.
"""

from __future__ import annotations

from collections.abc import Callable

from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.compose import compose
from sweep.engines.verl.facts import Machine, gather, this_machine
from sweep.engines.verl.settings import EngineSettings, complete
from sweep.errors import ConfigError
from sweep.health.preflight import Severity, preflight


def obstacle(
    trial: Trial, folder: str, settings: EngineSettings, locate: Callable[[Overrides], Overrides], *, here: bool
) -> str:
    """What stops the trial, each fault with the nearest value that works; empty if nothing does.

    `here`: the trial runs on this machine, so that its GPUs and CPUs count.
    """
    overrides = locate(complete(trial, folder, settings, True))
    try:
        composed = compose(overrides)
    except ConfigError as error:
        return str(error)
    if composed.unknown:
        return "; ".join(_unknown(u.key, u.suggestions) for u in composed.unknown)
    machine = this_machine() if here and not settings.on_cpu else Machine()
    facts = gather(composed, machine=machine, trial_steps=trial.steps)
    errors = [f for f in preflight(composed.config, facts) if f.severity is Severity.ERROR]
    return "; ".join(f.what + (f" (try {' or '.join(map(str, f.nearest))})" if f.nearest else "") for f in errors)


def _unknown(key: str, suggestions: tuple[str, ...]) -> str:
    near = f"; nearest: {', '.join(suggestions)}" if suggestions else ""
    return f"verl has no setting {key}{near}"
