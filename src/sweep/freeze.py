"""`python -m sweep.freeze`: what a campaign has frozen, on what it stands, and how to take it back.

Takes the settings of the campaign's own command, since whether a winner is stale depends on them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep import reading
from sweep.core.plan import CampaignPlan
from sweep.core.winner import Winner
from sweep.errors import ConfigError, SweepError
from sweep.report.columns import columns
from sweep.report.progress import say

HELP = """\
usage: python -m sweep.freeze [list | explain STAGE | unfreeze STAGE] [KEY=VALUE ...]

  list              every stage: frozen, stale (and what changed) or open
  explain STAGE     the winner with its evidence, and the stages that stand on it
  unfreeze STAGE    forget the winner; trials stay, so that freezing it again costs only what changed

KEY=VALUE are the settings of the campaign's own command, campaign=NAME first of all.
exit codes: 0 done, 1 bug or broken environment, 2 configuration
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(given):
        say(HELP)
        return 0
    try:
        say(_run(given))
    except SweepError as error:
        print(f"sweep.freeze: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _run(arguments: Sequence[str]) -> str:
    from sweep.config import compose, to_plan

    words = [a for a in arguments if "=" not in a]
    plan = to_plan(compose([a for a in arguments if "=" in a]))
    verb, stages = (words[0], words[1:]) if words else ("list", [])
    if verb == "list" and not stages:
        return listed(plan, _winners(plan))
    actions: dict[str, Callable[[CampaignPlan, str], str]] = {"explain": _explained, "unfreeze": _unfrozen}
    if verb not in actions or len(stages) != 1:
        raise ConfigError(f"asked for {' '.join(words)!r}; what works: list, explain STAGE, unfreeze STAGE")
    names = [s.name for s in plan.stages]
    if stages[0] not in names:
        raise ConfigError(f"stage must be one of {', '.join(names)}, got {stages[0]!r}")
    return actions[verb](plan, stages[0])


def listed(plan: CampaignPlan, winners: dict[str, Winner]) -> str:
    """A line a stage, in their order."""
    rows = [(s.name, state(plan, winners, s.name), _winner(winners.get(s.name))) for s in plan.stages]
    return "\n".join(columns(rows))


def state(plan: CampaignPlan, winners: dict[str, Winner], name: str) -> str:
    """Open, frozen and by which other terms than now, or stale and why: by its own base, or by a winner below it."""
    if name not in winners:
        return "open"
    if why := plan.stale_because(winners[name], winners):
        return f"stale: {why}"
    below = [u for u in plan.upstream_of(plan.stage(name)) if plan.stale_because(winners[u], winners)]
    if below:
        return f"stale: it stands on {', '.join(below)}"
    otherwise = plan.searched_otherwise(winners[name])
    return f"frozen, of a search by other settings: {otherwise}" if otherwise else "frozen"


def descendants(plan: CampaignPlan, name: str) -> list[str]:
    """The stages that start from this one's winner, near or far."""
    return [s.name for s in plan.stages if name in plan.upstream_of(s)]


def _explained(plan: CampaignPlan, name: str) -> str:
    import yaml

    winners = _winners(plan)
    if name not in winners:
        return f"stage {name} of campaign {plan.name} is open: nothing is frozen"
    text: str = yaml.safe_dump(winners[name].to_json(), sort_keys=False, allow_unicode=True)
    above = [s for s in descendants(plan, name) if s in winners]
    return f"{text}state: {state(plan, winners, name)}\nstages frozen on top of it: {', '.join(above) or 'none'}"


def _unfrozen(plan: CampaignPlan, name: str) -> str:
    from contextlib import closing

    from sweep.adapters.frozen_files import FrozenFiles
    from sweep.adapters.optuna_store import OptunaStore

    _refuse_without_storage(plan)
    with closing(OptunaStore.open(plan.storage_url, plan.name, seed=plan.seeds[0])) as store:
        store.unfreeze(name)
        FrozenFiles(Path(plan.folder), store).refresh()
        frozen = {w.stage for w in store.winners()}
    stale = [s for s in descendants(plan, name) if s in frozen]
    after = f"; stale until it is frozen again as it was: {', '.join(stale)}" if stale else ""
    return f"stage {name} of campaign {plan.name} is open again, its trials are kept{after}"


def _winners(plan: CampaignPlan) -> dict[str, Winner]:
    _refuse_without_storage(plan)
    return reading.winners(plan)


def _refuse_without_storage(plan: CampaignPlan) -> None:
    if reading.missing_file(plan.storage_url):
        path = plan.storage_url.removeprefix("sqlite:///")
        raise ConfigError(f"campaign {plan.name} was never run: there is no {path}")


def _winner(winner: Winner | None) -> str:
    if winner is None:
        return "-"
    changed = winner.choice.settings.to_json().items()
    return ", ".join(f"{k.rsplit('.', 1)[-1]}={v}" for k, v in changed) or "baseline kept"


if __name__ == "__main__":
    sys.exit(main())
