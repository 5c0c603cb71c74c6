"""`FrozenFiles`: `frozen/STAGE.yaml`, a view of the store's winners for people and other programs.

The files are written anew from the store when a campaign starts and when a stage is frozen; editing one changes
nothing, and a lost one comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import yaml

from sweep.core.outcome import Failed, Outcome
from sweep.core.progress import Proposal
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner
from sweep.ports import CampaignInfo, Store

log = logging.getLogger(__name__)

HEAD = "# Winner of stage {stage}, a view of the campaign's storage: editing this file changes nothing.\n"


class FrozenFiles:
    """An observer that keeps the folder `frozen` equal to the store's winners."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder / "frozen"
        self._store = store

    def campaign_started(self, info: CampaignInfo) -> None:
        """Write what is frozen already."""
        self.refresh()

    def refresh(self) -> None:
        """The files are those of the stages that are frozen now."""
        winners = self._store.winners()
        try:
            for path in self._folder.glob("*.yaml"):
                if path.stem not in {w.stage for w in winners}:
                    path.unlink()
        except OSError as error:
            log.warning("cannot clear %s: %s; the storage has the winners", self._folder, error)
        for winner in winners:
            self._write(winner)

    def stage_frozen(self, stage: Stage, winner: Winner) -> None:
        """Write the new winner."""
        self._write(winner)

    def stage_started(self, stage: Stage) -> None:
        """Nothing is frozen yet."""

    def trial_started(self, stage: Stage, proposal: Proposal, trial: Trial, folder: Path) -> None:
        """Nothing is frozen yet."""

    def stepped(self, stage: Stage, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing is frozen yet."""

    def attempt_failed(self, stage: Stage, trial: Trial, failure: Failed) -> None:
        """Nothing is frozen yet."""

    def trial_ended(self, stage: Stage, trial: Trial, outcome: Outcome, score: Score | None) -> None:
        """Nothing is frozen yet."""

    def campaign_ended(self, exit_code: int) -> None:
        """The files stay."""

    def _write(self, winner: Winner) -> None:
        text = HEAD.format(stage=winner.stage) + yaml.safe_dump(winner.to_json(), sort_keys=False, allow_unicode=True)
        aside = self._folder / f".{winner.stage}.yaml.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            aside.write_text(text, encoding="utf-8")
            aside.replace(self._folder / f"{winner.stage}.yaml")
        except OSError as error:
            log.warning("cannot write frozen/%s.yaml: %s; it comes back with the next run", winner.stage, error)
