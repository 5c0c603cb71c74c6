"""`HardwareObserver`: has every trial's GPUs watched, and at its end says which of the three patterns they showed."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sweep.adapters.hardware_watch import HardwareWatch
from sweep.core.outcome import Failed, Outcome
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.health.finding import Finding
from sweep.health.hardware import DEFAULT, HardwareFacts, HardwareLimits, hardware
from sweep.ports import CampaignInfo
from sweep.stats.timing import rollout_share

log = logging.getLogger(__name__)

FINDINGS_FILE = "hardware_findings.json"
FREE_CACHE = "actor_rollout_ref.rollout.free_cache_engine"


class HardwareObserver:
    """An `Observer`. The watch is opened with the first trial: only then is there a cluster to watch.

    `runtime_of` gives the name of the runtime that serves a trial, empty until one does; it is needed where trials
    run side by side.
    """

    def __init__(
        self,
        open_watch: Callable[[], HardwareWatch],
        *,
        runtime_of: Callable[[str], str] | None = None,
        limits: HardwareLimits = DEFAULT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_watch = open_watch
        self._runtime_of = runtime_of
        self._limits = limits
        self._clock = clock
        self._watch: HardwareWatch | None = None
        self._folders: dict[str, Path] = {}

    def campaign_started(self, info: CampaignInfo) -> None: ...

    def stage_started(self, stage: Stage) -> None: ...

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        """The trial is watched from now on, its runtime's start included."""
        if self._watch is None:
            self._watch = self._open_watch()
            self._watch.start()
        self._folders[trial.id] = folder
        runtime = None if self._runtime_of is None else partial(self._runtime_of, trial.id)
        try:
            self._watch.follow(trial.id, folder, self._clock(), runtime)
        except OSError as error:
            log.warning("hardware of trial %s is not recorded: %s", trial.id, error)

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None: ...

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None: ...

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """The patterns that showed lie beside the trace and are logged; without a GPU there is nothing to say."""
        folder = self._folders.pop(trial.id, None)
        if self._watch is None or folder is None:
            return
        samples = self._watch.leave(trial.id)
        found = hardware(samples, facts_of(trial, outcome), self._limits)
        for finding in found:
            log.warning("trial %s, %s: %s; %s", trial.id, finding.metric, finding.seen, finding.advice)
        try:
            _write(folder, found, len(samples), self._watch.absent())
        except OSError as error:
            log.warning("hardware of trial %s is not recorded: %s", trial.id, error)

    def stage_frozen(self, stage: Stage, winner: Winner) -> None: ...

    def campaign_ended(self, exit_code: int) -> None:
        """Nothing is watched any more."""
        if self._watch is not None:
            self._watch.close()


def facts_of(trial: Trial, outcome: Outcome) -> HardwareFacts:
    """What decides between causes, from the trial's settings and from its curve if it has one."""
    free_cache = trial.overrides.get(FREE_CACHE, True)
    curve = getattr(outcome, "curve", None)
    share = math.nan if curve is None else rollout_share(curve.gen_seconds, curve.step_seconds)
    return HardwareFacts(free_cache_engine=bool(free_cache), gen_share=share if math.isfinite(share) else None)


def _write(folder: Path, found: tuple[Finding, ...], samples: int, absent: tuple[str, ...]) -> None:
    content = {"version": 1, "samples": samples, "absent": absent, "findings": [f.to_json() for f in found]}
    (folder / FINDINGS_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
