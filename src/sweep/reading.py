"""A campaign's storage for whoever only reads it; a driver may be at work meanwhile."""

from __future__ import annotations

import os
from contextlib import closing
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


def winners(plan: CampaignPlan) -> dict[str, Winner]:
    """The frozen winners by stage."""
    with read_only(plan) as store:
        return {winner.stage: winner for winner in store.winners()}
