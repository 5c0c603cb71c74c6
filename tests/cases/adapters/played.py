"""A whole campaign of one stage over a scripted engine and a real store: `Played`. For cases about the loop."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.adapters.optuna_store import OptunaStore
from sweep.campaign import Campaign, Running, trial_folder
from sweep.core.curve import METRICS
from sweep.core.failure import Cause, FailureClass
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.plan import CampaignPlan, ModelFacts
from sweep.core.progress import Proposal
from sweep.core.stage import Knob, SearchRule, Stage, StageBudget
from sweep.core.trial import Trial
from sweep.fleet import Fleet
from sweep.health.doctor_catalog import load_catalog
from tests.fakes import FakeClock, Script, ScriptedEngine, flat_metrics

from ..vocabulary import code

STEPS = 20
KEYS = {"mini": "actor_rollout_ref.actor.ppo_mini_batch_size", "kl": "algorithm.kl_ctrl.kl_coef"}


def settings(values: Mapping[str, Any]) -> Overrides:
    """The case's settings under verl's keys where it abbreviates them."""
    return Overrides.of({KEYS.get(key, key): value for key, value in values.items()})


def class_of(name: str) -> FailureClass:
    """The failure class of a doctor's code."""
    found = (f.failure_class for f in load_catalog().failures if code(f.code) == code(name))
    return next(found, FailureClass.UNKNOWN)


def scoring(value: float) -> Callable[[int], dict[str, float]]:
    """Metrics of a run whose score is this value at every step."""
    return lambda step: flat_metrics(step) | {METRICS["score"]: value}


def failing(name: str) -> Script:
    """A run whose process dies at its first step with this code of the doctor's on its console."""
    return Script(dies_at=1, log=f"{name}\n")


class Played:
    """The campaign, its store and its engine; `script` says how each attempt goes."""

    def __init__(
        self, script: Callable[[Trial, bool], Script], start: Sequence[Overrides] = (), trials: int = 10, slots: int = 1
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        keys = sorted({key for s in start for key, _ in s} or {KEYS["kl"]})
        self.stage = Stage(
            "stage",
            tuple(Knob(key, 0.0, 10_000.0) for key in keys),
            SearchRule(start=tuple(start), tie_margin=0.0),
            "reward_in_band",
            StageBudget(trials, STEPS, warmup_steps=0),
        )
        model = ModelFacts("tiny", "generated", needs_gpu=False)
        self.plan = CampaignPlan(
            "a1", self._folder.name, (self.stage,), ("stage",), NOTHING, model, (0,), slots=slots, engine="scripted"
        )
        self.engine = ScriptedEngine(FakeClock(), script, slots=slots)
        self.open()

    def open(self) -> None:
        """A driver, the first or the next, on the same storage."""
        self.store = OptunaStore.open(f"sqlite:///{self._folder.name}/optuna.db", "a1")
        self.fleet = Fleet(
            self.engine,
            folder_of=lambda trial: trial_folder(self.plan, trial),
            classify=lambda log: Cause(class_of(log.split()[-1]) if log.split() else FailureClass.UNKNOWN, log.strip()),
            clock=self.engine.clock,
            sleep=self.engine.clock.advance,
        )
        self.campaign = Campaign(self.plan, store=self.store, fleet=self.fleet)

    def begin(self, chosen: Overrides) -> Trial:
        """The campaign starts the trial of these settings, or does what it does with one that it knows."""
        trial = Trial(chosen, 0, STEPS)
        self.campaign._start(Running(self.stage, Proposal(chosen, 0, chosen), trial))
        return trial

    def trained(self) -> list[str]:
        """The ids of the attempts that a runtime was given, in order."""
        return [trial.id for runtime in self.engine.started for trial in runtime.given]

    def waiting(self) -> list[str]:
        """The ids of trials that were handed to the fleet and have not ended."""
        return list(self.campaign._running)

    def close(self) -> None:
        """The driver has let go and its folder is gone."""
        self.fleet.close()
        self.store.close()
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        return Path(self._folder.name)
