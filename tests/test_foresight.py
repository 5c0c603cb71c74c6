"""What `plan=true` says beside what the run then does: frozen, stale, known from an earlier campaign, spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import wiring
from sweep.adapters.optuna_store import OptunaStore
from sweep.config import compose, to_plan
from sweep.core.plan import CampaignPlan
from sweep.errors import ConfigError

SMALL = ("engine=rehearsal", "model=qwen2.5-0.5b", "budget.steps=8", "confirm.seeds=0")


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Campaigns without MLflow, which takes seconds."""
    monkeypatch.setattr(wiring, "_observers", lambda *_: [])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with campaign `a`, whose minibatch and kl are frozen."""
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "_observers", lambda *_: [])
        for stage in ("minibatch", "kl"):
            run(runs, f"stage={stage}", "campaign=a")
    return runs


def run(runs: Path, *asked: str) -> None:
    config = compose([*SMALL, f"runs={runs}", *asked])
    wiring.run_campaign(config, to_plan(config))


def planned(runs: Path, *asked: str) -> CampaignPlan:
    return to_plan(compose([*SMALL, f"runs={runs}", *asked]))


def price(runs: Path, *asked: str) -> str:
    return wiring.price(planned(runs, *asked))


def row(text: str, stage: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"{stage} "))


def test_a_frozen_stage_is_priced_as_frozen(finished: Path) -> None:
    assert row(price(finished, "campaign=a", "stage=kl"), "kl") == ["kl", "frozen", "-", "-", "-"]


@pytest.mark.parametrize("changed", ["budget.steps=7", 'verl=["algorithm.lam=0.96"]'])
def test_a_plan_says_stale_where_the_run_refuses(finished: Path, changed: str) -> None:
    text = price(finished, "campaign=a", "stage=minibatch", changed)
    assert row(text, "minibatch")[1] == "stale"
    assert "the run would stop at minibatch: stale: " in text
    with pytest.raises(ConfigError, match="what it stands on has changed"):
        run(finished, "campaign=a", "stage=minibatch", changed)


def test_an_open_stage_on_a_stale_winner_is_stale_too(finished: Path) -> None:
    text = price(finished, "campaign=a", "stage=token_budget", 'verl=["algorithm.lam=0.96"]')
    assert row(text, "token_budget")[1] == "stale"
    assert "stale: it stands on minibatch: algorithm.lam " in text


def test_a_plan_is_refused_where_the_run_lacks_a_winner_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stage kl needs the winner of minibatch"):
        price(tmp_path, "campaign=zz", "stage=kl")
    assert list(tmp_path.iterdir()) == []


def unfreeze(runs: Path, keep: Callable[[str], bool]) -> None:
    plan = planned(runs, "campaign=a")
    store = OptunaStore.open(plan.storage_url, plan.name)
    for winner in store.winners():
        if not keep(winner.stage):
            store.unfreeze(winner.stage)
    store.close()


def test_an_unfrozen_stage_whose_trials_are_known_costs_nothing_and_tells_whether_the_next_stays_frozen(
    tmp_path: Path,
) -> None:
    for stage in ("minibatch", "kl"):
        run(tmp_path, f"stage={stage}", "campaign=a")
    unfreeze(tmp_path, lambda stage: stage == "kl")
    with pytest.raises(ConfigError, match="stage kl needs the winner of minibatch"):
        price(tmp_path, "campaign=a", "stage=kl")
    text = price(tmp_path, "campaign=a")
    assert row(text, "minibatch")[1] == "0"
    assert row(text, "kl")[1] == "frozen" and "stays frozen only" not in text
    text = price(tmp_path, "campaign=a", "stages.minibatch.budget.trials=8", "stages.minibatch.bracket.most_points=8")
    assert row(text, "kl")[1] in ("frozen", "stale")


def test_trials_of_an_earlier_campaign_are_known_and_their_times_too(finished: Path) -> None:
    alone, after = price(finished, "campaign=b", "stage=all"), price(finished, "campaign=b", "earlier=a")
    assert row(alone, "minibatch")[1] != "0" and "the time of a step is not known" in alone
    assert row(after, "minibatch")[1] == row(after, "kl")[1] == "0"
    assert row(after, "token_budget")[1] != "0"
    assert "medians of finished trials of b or a" in after
    assert not (finished / "b").exists()


def test_a_budget_is_shown_with_what_is_spent_also_on_a_cpu(finished: Path) -> None:
    text = price(finished, "campaign=a", "budget.gpu_hours=0.05")
    (line,) = [line for line in text.splitlines() if line.startswith("budget.gpu_hours=0.05, ")]
    assert float(line.split()[1]) > 0 and line.endswith(" spent")
    assert "budget.gpu_hours" not in price(finished, "campaign=a")
    on_cpu = replace(planned(finished, "campaign=a", "budget.gpu_hours=0.05"), wanted=("token_budget",))
    on_cpu = replace(on_cpu, model=replace(on_cpu.model, needs_gpu=False))
    text = wiring.price(on_cpu)
    assert "none" not in row(text, "token_budget") and "without a GPU an hour of a trial counts as one" in text


def test_trials_of_an_earlier_campaign_are_known_in_the_final_table(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(finished, "campaign=c", "earlier=a", "stage=minibatch")
    said = capsys.readouterr().out
    assert "  0 (+4 known)" in said or "  0 (+" in said
    assert "spent in 0 trials: 0 s" in said
