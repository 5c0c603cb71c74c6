"""`Stage`: what one stage searches, by which rule, scored by what; everything a YAML in `sweeps/` can say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from sweep.core import verl_keys as keys
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Measure
from sweep.core.within import Within

Positive: TypeAlias = Annotated[float, Within(low=0, open_low=True)]
Share: TypeAlias = Annotated[float, Within(low=0, high=1, open_high=True)]


@dataclass(frozen=True, slots=True)
class Knob:
    """One searched setting: its verl key in full and its inclusive range."""

    key: str
    low: float
    high: float
    log: bool = False
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One candidate of a ladder: a name for people and the settings that move together."""

    name: str
    settings: Overrides


@dataclass(frozen=True, slots=True)
class Ladder:
    """Candidates in order from cheap to dear.

    `climb`: go up from the baseline while the score improves, down if the first step up did not help;
    otherwise every rung is tried. `note`: what to know of the rungs, for the winner's notes.
    """

    name: str
    rungs: tuple[Rung, ...]
    climb: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class EtaRule:
    """Constants of the mini-batch rule. Source: S0 section 2.1; the bands' gaps are closed in `stages.eta`.

    `follow_train_batch`: the train batch follows each mini-batch; else it stays, and only its divisors are tried.
    """

    first_factor: Positive = 0.7
    lower_factor: Annotated[float, Within(low=0, high=1, open_low=True, open_high=True)] = 0.9
    raise_factor: Annotated[float, Within(low=1, open_low=True)] = 1.15
    go_on_above: Annotated[float, Within(low=1)] = 1.05
    turn_below: Annotated[float, Within(low=0, high=1)] = 0.95
    steady_low: Annotated[float, Within(low=0, high=1)] = 0.98
    steady_high: Annotated[float, Within(low=1)] = 1.02
    safe_fraction: Annotated[float, Within(low=0)] = 0.25
    follow_train_batch: bool = True
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    """What follows if a rung's highest `series` lies over the start's by more than the share `rise`.

    The rung is tried again with `key` lower by `step`, but not under `least`; `unset` is its value where the
    configuration does not say. Source: METHOD section 4 (peak memory, 10 %, back with gpu_memory_utilization); step
    and floor are ours.
    """

    key: str = keys.MEMORY_UTILIZATION
    series: str = "peak_gib"
    rise: Annotated[float, Within(low=0)] = 0.10
    step: Positive = 0.1
    least: Annotated[float, Within(low=0)] = 0.3
    unset: Annotated[float, Within(low=0)] = 0.5


@dataclass(frozen=True, slots=True)
class LadderRule:
    """Ladders walked one after the other: the winner of one is fixed while the next is tried.

    `tie_margin`: a dearer rung must beat a cheaper one by more than this share to win (METHOD section 4).
    """

    ladders: tuple[Ladder, ...]
    tie_margin: float = 0.02
    rollback: Rollback | None = None


@dataclass(frozen=True, slots=True)
class SearchRule:
    """Search of the knobs by an Optuna sampler, by class name, after the baseline and `start` values."""

    sampler: str = "TPESampler"
    start: tuple[Overrides, ...] = ()
    tie_margin: float = 0.02


@dataclass(frozen=True, slots=True)
class BracketRule:
    """Knobs walked one after the other to the peak of a parabola, one run a value. Constants: `stats.bracket`.

    `first_factor`: first move as a factor of the configured value; None: the range's width over `moves`, upwards
    where there is room. `prove`: a knob keeps its value unless the peak is *better* by interval over the stage's seeds.
    `article`: the article's rule for the mini-batch, read on the same trials and reported beside.
    """

    first_factor: Annotated[float | None, Within(low=0, open_low=True)] = None
    moves: Annotated[int, Within(low=1)] = 4
    most_points: Annotated[int, Within(low=2)] = 6
    near_share: Share = 0.2
    prove: bool = False
    article: EtaRule | None = None


@dataclass(frozen=True, slots=True)
class ConfirmRule:
    """The campaign's base against base and winners, on seeds that no search used.

    `beside` are further configurations, name to settings over the base, that run on the same seeds to be compared with
    the winner; none of them can win.
    """

    beside: tuple[tuple[str, Overrides], ...] = ()


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A rule of the user's: `import_path` is `module:function`, called like every other `decide`."""

    import_path: str


Rule: TypeAlias = BracketRule | EtaRule | LadderRule | SearchRule | ConfirmRule | CustomRule


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound that a trial must keep to win: `low <= statistic(series) <= high`, over the steps after warm-up.

    With `baseline_slack` a baseline that breaks the bound itself moves it: to its own value, widened by this share.
    """

    series: str
    statistic: str = "mean"
    low: float | None = None
    high: float | None = None
    baseline_slack: Annotated[float | None, Within(low=0)] = None


@dataclass(frozen=True, slots=True)
class StageBudget:
    """What a stage may spend: arms to try (the baseline is one), seeds an arm, steps a trial, steps dropped as warm-up.

    `trials` counts arms (the baseline and at least one candidate), so that asking for more seeds does not mean trying
    fewer candidates.
    """

    trials: Annotated[int, Within(low=2)]
    steps: Annotated[int, Within(low=1)]
    seeds: Annotated[int, Within(low=1)] = 1
    warmup_steps: Annotated[int, Within(low=0)] = 5

    @property
    def most_trials(self) -> int:
        """Trials if every arm needs every seed."""
        return self.trials * self.seeds


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of a trial that only generates: those that are measured, after those that are not.

    Defaults: ours. The first three rounds of a 135M model on an H200 rose by a third (29.7, 33.7, 39.2 thousand
    token/s at 8192 tokens and 256 sequences), so some must pass; the measured ones give the error of their mean.
    """

    measured: Annotated[int, Within(low=1)] = 5
    warmup: Annotated[int, Within(low=0)] = 2

    def of(self, budget: StageBudget) -> StageBudget:
        """The budget with rounds in place of its steps."""
        return replace(budget, steps=self.warmup + self.measured, warmup_steps=self.warmup)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. `fixed` is set on every candidate (not on the baseline) and frozen with the winner.

    `measure`: what its trials do.
    """

    name: str
    knobs: tuple[Knob, ...]
    rule: Rule
    objective: str
    budget: StageBudget
    fixed: Overrides = NOTHING
    constraints: tuple[Constraint, ...] = ()
    follows: tuple[str, ...] = ()
    objective_options: Overrides = NOTHING
    measure: Measure = Measure.TRAINING
