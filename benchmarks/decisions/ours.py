"""The staged search: the product's own rules over the product's own `sweeps/`, in a world instead of a cluster.

`stages` loads the stage files as the command line does, with other budgets where asked. `play` is the campaign's loop
without stores, runtimes and observers: a rule decides, the world answers, the winner is laid over the base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import yaml
from omegaconf import OmegaConf

from benchmarks.decisions.worlds import BASE, STEPS, WARMUP, World
from sweep.adapters.search_space import distributions, sampler
from sweep.config import register_resolvers
from sweep.core.decision import Ask, Freeze, Halt, Launch, Wait
from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.plan import ModelFacts
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import SearchRule, Stage
from sweep.core.trial import Trial
from sweep.stage_files import stage_from
from sweep.stages import decide, objective
from sweep.stats.verdict import DEFAULT_SEEDS

ROOT = Path(__file__).resolve().parents[2]
ORDER = ("minibatch", "kl", "token_budget", "lr_lambda")
EARLIER = {"minibatch": "eta", "kl": "search", "lr_lambda": "ladder"}
"""Rules that keep a value unless another is told apart or leads by a margin, in place of the shipped ones."""
MODEL = ModelFacts("benchmark", "none", needs_gpu=True, gpus=8, gpu_gib=80.0, hidden_size=4096)


@dataclass(frozen=True, slots=True)
class Played:
    """What a campaign froze and what it cost, after every stage."""

    settings: Overrides
    spent_steps: int
    after_stage: tuple[tuple[str, int, Overrides], ...]
    halted: str = ""


def stages(
    rules: Mapping[str, str] | None = None,
    *,
    order: Sequence[str] = ORDER,
    seeds: int | None = None,
    prove: bool = False,
) -> tuple[Stage, ...]:
    """The stages that search as shipped, or with other rules by stage, other seeds an arm, or proven peaks."""
    shipped = yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())["budget"]
    budget = {**shipped, "steps": STEPS, "warmup_steps": WARMUP, "seeds": seeds or shipped["seeds"]}
    filled, loaded = _filled(order, budget), []
    for name in order:
        content = filled[name]
        content["rule"] = (rules or {}).get(name, content["rule"])
        if "bracket" in content:
            content["bracket"]["prove"] = prove
        loaded.append(stage_from(name, content, BASE, MODEL))
    return tuple(loaded)


def _filled(names: Sequence[str], budget: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The stage files by name, with what they take from the campaign's budget."""
    register_resolvers()
    files = {name: OmegaConf.load(ROOT / "sweeps" / f"{name}.yaml") for name in names}
    whole = OmegaConf.to_container(OmegaConf.create({"budget": dict(budget), "stages": files}), resolve=True)
    return whole["stages"]  # type: ignore[call-overload, index, return-value]


def play(plan: tuple[Stage, ...], world: World, campaign_seed: int) -> Played:
    """The campaign played to its end; a stage that halts leaves its base as it was."""
    held = Overrides()
    after: list[tuple[str, int, Overrides]] = []
    halted = ""
    for stage in plan:
        decision = _search(stage, world, held, campaign_seed)
        if isinstance(decision, Freeze):
            held = held.merged(decision.choice.settings)
        else:
            halted = f"{stage.name}: {decision.reason}"
        after.append((stage.name, world.spent_steps, held))
    return Played(held, world.spent_steps, tuple(after), halted)


def _search(stage: Stage, world: World, held: Overrides, campaign_seed: int) -> Freeze | Halt:
    seeds = tuple(range(1, 13))
    records: list[Record] = []
    while True:
        progress = Progress(BASE.merged(held), tuple(records), seeds)
        decision = decide(stage, progress)
        match decision:
            case Launch(proposals):
                records.append(_record(stage, world, held, proposals[0]))
            case Ask():
                records.append(_record(stage, world, held, _asked(stage, records, campaign_seed, seeds[0])))
            case Freeze() | Halt():
                return decision
            case Wait():
                raise AssertionError(f"stage {stage.name} waits although nothing runs")


def _record(stage: Stage, world: World, held: Overrides, proposal: Proposal) -> Record:
    settings, steps = held.merged(proposal.settings), stage.budget.steps
    outcome = world.run(settings, proposal.seed, steps)
    trial = Trial(BASE.merged(settings), proposal.seed, steps)
    return Record(trial, proposal.settings, proposal.requested, proposal.note, outcome)


OURS: dict[str, Callable[[], tuple[Stage, ...]]] = {
    "staged, as shipped": stages,
    "staged, with retest": lambda: stages(order=(*ORDER, "retest")),
    "staged, every peak proven": lambda: stages(seeds=DEFAULT_SEEDS, prove=True),
    "staged, by verdicts": lambda: stages(EARLIER),
    "staged, article's rule": lambda: stages({**EARLIER, "minibatch": "article"}),
}


def _asked(stage: Stage, records: list[Record], campaign_seed: int, seed: int) -> Proposal:
    """A point from the stage's sampler, which knows every earlier run of the stage."""
    assert isinstance(stage.rule, SearchRule)
    space = distributions(stage)
    study = optuna.create_study(direction="maximize", sampler=sampler(stage, stage.rule, campaign_seed, len(records)))
    for record in records:
        if isinstance(record.outcome, Finished):
            params = {k: record.settings.get(k, BASE.get(k)) for k in space}
            value = objective.score(stage, record.outcome).value
            study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))
    params = Overrides.of(study.ask(space).params)
    return Proposal(stage.fixed.merged(params), seed, params)
