"""`CampaignPlan`: a whole campaign as one value, built once from the composed configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweep.core.command import command
from sweep.core.overrides import NOTHING, Overrides, content_hash
from sweep.core.search_terms import search_terms
from sweep.core.stage import ConfirmRule, Stage
from sweep.core.trial import Measure
from sweep.core.winner import Winner

CONFIRM_OFFSET = 1000
"""Distance of a confirmation's seeds from the search's, so that more seeds for the search never meet them. Ours."""


def storage_file(folder: Path) -> str:
    """The URL of the SQLite storage in a campaign's folder."""
    return f"sqlite:///{folder.resolve() / 'optuna.db'}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Longest waits, in seconds: until a runtime is ready, between two steps, and after the last one.

    `unattended_seconds`: how long a given cluster keeps what a dead driver left, for the next one.
    """

    start_seconds: float = 1200.0
    step_seconds: float = 900.0
    end_seconds: float = 120.0
    unattended_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of the model before anything starts."""

    name: str
    path: str
    needs_gpu: bool
    gpus: int = 1
    gpu_gib: float | None = None
    hidden_size: int | None = None


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What to run. `stages` are all stages known, in their order; `wanted` those to run now.

    Finished trials of the campaign `earlier` are taken over where they are the same.

    `save_steps`: steps between checkpoints of the long run that the campaign ends with.

    `asked` are the settings as typed, for commands that messages advise.

    `base` holds the verl settings of model, task and user; the engine adds what makes verl run where it runs.
    """

    name: str
    folder: str
    stages: tuple[Stage, ...]
    wanted: tuple[str, ...]
    base: Overrides
    model: ModelFacts
    seeds: tuple[int, ...]
    engine: str = "verl"
    slots: int = 1
    cluster_address: str | None = None
    reuse: bool = True
    save_steps: int = 1000
    timeouts: Timeouts = Timeouts()
    gpu_hours: float | None = None
    early_stop: bool = True
    storage_url: str = ""
    earlier: str | None = None
    earlier_url: str = ""
    tracking_uri: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    @property
    def counts_gpu_hours(self) -> bool:
        """Whether hours of trials are told as GPU-hours: a budget of them counts a CPU as one, too."""
        return self.model.needs_gpu or self.gpu_hours is not None

    def command(self, program: str, *words: str) -> str:
        """The user's own command line turned into another one on the same campaign, to be pasted into a shell."""
        return command(program, *words, f"campaign={self.name}", asked=self.asked, leave_out=("stage", "plan"))

    def stage(self, name: str) -> Stage:
        """The stage of this name."""
        return next(s for s in self.stages if s.name == name)

    def upstream_of(self, stage: Stage) -> tuple[str, ...]:
        """The stages whose winners this one starts from, nearest last."""
        found: list[str] = []
        for name in stage.follows:
            found.extend(u for u in (*self.upstream_of(self.stage(name)), name) if u not in found)
        return tuple(found)

    def seeds_of(self, stage: Stage) -> tuple[int, ...]:
        """The seeds that the stage may use; a confirmation has its own."""
        if isinstance(stage.rule, ConfirmRule):
            return tuple(self.seeds[0] + CONFIRM_OFFSET + i for i in range(stage.budget.seeds))
        return self.seeds

    def base_of(self, stage: Stage, upstream: Iterable[Winner]) -> Overrides:
        """What the stage's settings are laid over: the base with the winners before, without them in a confirmation."""
        return self.base if isinstance(stage.rule, ConfirmRule) else self.base.merged(found_by(upstream))

    def stands_on(self, stage: Stage, upstream: tuple[Winner, ...]) -> str:
        """Hash of everything that the stage's result depends on besides its own trials: base, seeds and winners."""
        return content_hash(
            {
                "base": {k.lstrip("+"): v for k, v in self.base.to_json().items()},
                "seeds": list(self.seeds_of(stage)),
                "steps": stage.budget.steps,
                **({} if stage.measure is Measure.TRAINING else {"measure": stage.measure.value}),
                "upstream": {w.stage: w.choice.settings.to_json() for w in upstream},
            }
        )

    def stale_because(self, winner: Winner, frozen: Mapping[str, Winner]) -> str:
        """Why a frozen winner no longer stands where it was found, empty if it does; names what changed."""
        stage = self.stage(winner.stage)
        names = self.upstream_of(stage)
        if missing := [n for n in names if n not in frozen]:
            return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not frozen any more"
        upstream = tuple(frozen[n] for n in names)
        if winner.stands_on == self.stands_on(stage, upstream):
            return ""
        base = self.base_of(stage, upstream)
        changed = [f"{k} {winner.base.get(k)!r} -> {base.get(k)!r}" for k in winner.base.difference(base)]
        return ", ".join(changed) or self._other_trials(stage, winner)

    def searched_otherwise(self, winner: Winner) -> str:
        """How the stage would search now and did not when it froze the winner, empty if it would not."""
        now = search_terms(self.stage(winner.stage))
        changed = winner.search.difference(now) if winner.search else ()
        return ", ".join(f"{key} {winner.search.get(key)!r} -> {now.get(key)!r}" for key in changed)

    def _other_trials(self, stage: Stage, winner: Winner) -> str:
        """How the stage's trials would differ from those that the winner was found by, settings apart."""
        steps, seeds = stage.budget.steps, self.seeds_of(stage)[: len(winner.seeds)]
        told = [f"steps a trial {winner.steps} -> {steps}"] if winner.steps not in (0, steps) else []
        if seeds != winner.seeds:
            told.append(f"seeds {_listed(winner.seeds)} -> {_listed(seeds)}")
        return ", ".join(told) or "its steps, the number of its seeds or what its trials measure"


def _listed(seeds: Iterable[int]) -> str:
    return " ".join(map(str, seeds))


def found_by(winners: Iterable[Winner]) -> Overrides:
    """The settings of the winners, later ones on top."""
    found = NOTHING
    for winner in winners:
        found = found.merged(winner.choice.settings)
    return found
