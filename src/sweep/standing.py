"""`start_of`, `refuse_stale`, `searched_otherwise`: on what a stage stands and stood, read from plan and store."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.core.outcome import Finished
from sweep.core.overrides import Overrides
from sweep.core.plan import CampaignPlan, found_by
from sweep.core.progress import Progress, replicated
from sweep.core.stage import Stage
from sweep.core.trial import Trial
from sweep.core.winner import Winner
from sweep.errors import ConfigError
from sweep.ports import Store


def start_of(plan: CampaignPlan, store: Store, stage: Stage, upstream: tuple[Winner, ...]) -> Progress:
    """What the stage's rule knows before its first trial."""
    earlier = [plan.stage(w.stage) for w in upstream]
    found = found_by(upstream)
    return Progress(
        plan.base_of(stage, upstream),
        (),
        plan.seeds_of(stage),
        replicates=replicated(r for s in earlier for r in store.records(s)),
        found=found,
        searched=_seen_by_the_search(plan, store, stage, found),
    )


def _seen_by_the_search(
    plan: CampaignPlan, store: Store, stage: Stage, found: Overrides
) -> tuple[Finished, Finished] | None:
    """The runs of all winners together and of the base on the search's first seed, if both finished."""
    settings = (plan.base.merged(found), plan.base)
    own, base = (store.find(Trial(s, plan.seeds[0], stage.budget.steps).id) for s in settings)
    return (own, base) if isinstance(own, Finished) and isinstance(base, Finished) else None


def refuse_stale(plan: CampaignPlan, frozen: Winner, winners: Mapping[str, Winner]) -> None:
    """A frozen winner never changes by itself: on another base the user decides.

    Raises:
        ConfigError: if the winner was found on something else; names the settings that differ.
    """
    if what := plan.stale_because(frozen, winners):
        raise ConfigError(
            f"stage {frozen.stage} is frozen, but what it stands on has changed: {what}; set it back, choose another "
            f"campaign=NAME, or unfreeze it: {plan.command('sweep.freeze', 'unfreeze', frozen.stage)}"
        )


def searched_otherwise(plan: CampaignPlan, store: Store) -> tuple[str, ...]:
    """A sentence for each frozen stage that would search by other terms now: its winner stays, and says nothing of
    them."""
    frozen = [w for w in store.winners() if w.stage in {s.name for s in plan.stages}]
    return tuple(
        f"stage {winner.stage} stays frozen as it was found, by other settings than it has now ({changed}); to search "
        f"by these: {plan.command('sweep.freeze', 'unfreeze', winner.stage)}"
        for winner in frozen
        if (changed := plan.searched_otherwise(winner))
    )
