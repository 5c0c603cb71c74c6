"""A campaign's storage for whoever only reads it; a driver may be at work meanwhile."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING

from sweep.core.plan import CampaignPlan
from sweep.core.winner import Winner

if TYPE_CHECKING:
    from sweep.adapters.optuna_store import OptunaStore


def missing_file(url: str) -> bool:
    """Whether the URL names a SQLite file that does not exist."""
    return url.startswith("sqlite:///") and not os.path.exists(url.removeprefix("sqlite:///"))


def read_only(plan: CampaignPlan) -> closing[OptunaStore]:
    """The campaign's store for a `with` that only reads it; a driver may be at work meanwhile."""
    from sweep.adapters.optuna_store import OptunaStore

    return closing(OptunaStore.open(plan.storage_url, plan.name, driver=False))


def everything_known(plan: CampaignPlan) -> AbstractContextManager[OptunaStore | None]:
    """As `read_only`, with what the earlier campaign finished; None where neither has been begun."""
    from sweep.adapters.optuna_store import OptunaStore

    urls = [plan.storage_url, *([plan.earlier_url] if plan.earlier is not None else [])]
    there = [url for url in urls if not missing_file(url)]
    if not there:
        return nullcontext(None)
    earlier = None if plan.earlier is None else OptunaStore.open(plan.earlier_url, plan.earlier, driver=False)
    return closing(OptunaStore.open(there[0], plan.name, driver=False, earlier=earlier))


def winners(plan: CampaignPlan) -> dict[str, Winner]:
    """The frozen winners by stage."""
    with read_only(plan) as store:
        return {winner.stage: winner for winner in store.winners()}
