"""`outlooks`: what is known of each wanted stage before this run, as far as its rule can go without a new trial.

The rules are asked as the campaign asks them, with what this campaign or the earlier one finished for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweep.campaign import proposal_of, trial_of
from sweep.core.decision import Freeze, Launch
from sweep.core.outcome import Finished
from sweep.core.plan import CampaignPlan
from sweep.core.progress import Progress, Proposal, Record
from sweep.core.stage import Stage
from sweep.core.winner import Choice, Winner
from sweep.ports import Store
from sweep.report.price import Outlook
from sweep.stages import decide
from sweep.standing import start_of


def outlooks(plan: CampaignPlan, store: Store) -> dict[str, Outlook]:
    """The outlook of every wanted stage.

    Raises:
        ConfigError: if a rule of the user's fails.
        StoreError: if a stage has trials from another search space.
    """
    winners = {winner.stage: winner for winner in store.winners()}
    found: dict[str, Outlook] = {}
    for stage in (s for s in plan.stages if s.name in plan.wanted):
        names = plan.upstream_of(stage)
        stale = _stale(plan, winners, stage)
        if stage.name in winners:
            awaits = tuple(n for n in names if n not in winners)
            found[stage.name] = Outlook(frozen=True, stale=stale, awaits=awaits)
        elif stale or any(n not in winners for n in names):
            ended = tuple(r for r in store.records(stage) if r.outcome is not None)
            found[stage.name] = Outlook(known=ended, stale=stale)
        else:
            known, choice = _replayed(plan, store, stage, tuple(winners[n] for n in names))
            found[stage.name] = Outlook(known=known, settled=choice is not None)
            if choice is not None:
                winners[stage.name] = Winner(stage.name, choice, type(stage.rule).__name__, (), "")
    return found


def _stale(plan: CampaignPlan, winners: Mapping[str, Winner], stage: Stage) -> str:
    """Why the campaign would refuse the stage; nothing of what cannot be told before this run froze what is below."""
    for name in (*plan.upstream_of(stage), stage.name):
        frozen = winners.get(name)
        told = frozen is not None and frozen.stands_on and set(plan.upstream_of(plan.stage(name))) <= winners.keys()
        if frozen is not None and told and (why := plan.stale_because(frozen, winners)):
            return why if name == stage.name else f"it stands on {name}: {why}"
    return ""


def _replayed(
    plan: CampaignPlan, store: Store, stage: Stage, upstream: tuple[Winner, ...]
) -> tuple[tuple[Record, ...], Choice | None]:
    """The trials that the rule comes to ask for and that are known, and its choice if they suffice."""
    progress = start_of(plan, store, stage, upstream)
    own = (r for r in store.records(stage) if r.outcome is not None)
    records = tuple(r for r in own if r.trial == trial_of(stage, progress.base, proposal_of(r)))
    while True:
        progress = progress.later(records)
        decision = decide(stage, progress)
        if isinstance(decision, Freeze):
            return records, decision.choice
        proposals = decision.proposals if isinstance(decision, Launch) else ()
        taken_over = [r for p in proposals if (r := _known(store, stage, progress, p)) is not None]
        if not taken_over:
            return records, None
        records = (*records, *taken_over)


def _known(store: Store, stage: Stage, progress: Progress, proposal: Proposal) -> Record | None:
    """The proposal's trial if it has finished anywhere and is not among the records yet."""
    trial = trial_of(stage, progress.base, proposal)
    outcome = store.find(trial.id)
    if not isinstance(outcome, Finished) or any(r.trial.id == trial.id for r in progress.records):
        return None
    return Record(trial, proposal.settings, proposal.requested, proposal.note, outcome)
