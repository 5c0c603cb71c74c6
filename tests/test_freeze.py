"""`python -m sweep.freeze` on a rehearsed campaign: list, explain, unfreeze, and what becomes stale."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sweep import cli, freeze

STAGES = ("minibatch", "kl", "token_budget", "lr_lambda")


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> list[str]:
    runs = tmp_path_factory.mktemp("runs")
    asked = [
        "engine=rehearsal",
        f"runs={runs}",
        "model=qwen2.5-0.5b",
        "campaign=first",
        "budget.steps=40",
        "confirm.seeds=1",
    ]
    assert cli.run(asked) == cli.DONE
    return asked


def lines(capsys, *arguments: str) -> dict[str, str]:
    assert freeze.main(arguments) == 0
    return {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}


def test_every_stage_is_listed_with_its_winner(asked, capsys):
    shown = lines(capsys, *asked)
    assert list(shown) == [*STAGES, "confirm"]
    assert all("frozen" in line for line in shown.values())


def test_a_changed_setting_makes_every_winner_stale_and_is_named(asked, capsys):
    shown = lines(capsys, "list", *asked, 'verl=["algorithm.gamma=0.9"]')
    assert "stale: algorithm.gamma None -> 0.9" in shown["minibatch"]
    assert "stale" in shown["confirm"]


def test_a_winner_is_explained_by_its_evidence(asked, capsys):
    assert freeze.main(["explain", "minibatch", *asked]) == 0
    text, _, after = capsys.readouterr().out.partition("state: ")
    content = yaml.safe_load(text)
    for key in ("overrides", "requested", "ratio", "seeds", "trials", "rule", "stands_on", "upstream", "base"):
        assert key in content
    assert content["ratio"]["low"] < content["ratio"]["value"] < content["ratio"]["high"]
    assert after.startswith("frozen")
    assert "kl, token_budget, lr_lambda, confirm" in after


@pytest.mark.parametrize(
    ("more", "told"),
    [(["budget.steps=9"], "steps a trial 40 -> 9"), (["seed=7"], "seeds 1 -> 7")],
)
def test_other_steps_or_seeds_are_named_with_both_values(asked, capsys, more, told):
    assert f"stale: {told}" in lines(capsys, *asked, *more)["minibatch"]


def test_unfreezing_opens_the_stage_and_those_on_top_go_stale_until_it_is_frozen_again(asked, capsys):
    folder = Path(asked[1].partition("=")[2]) / "first"
    assert freeze.main(["unfreeze", "minibatch", *asked]) == 0
    said = capsys.readouterr().out
    assert "stale until it is frozen again as it was: kl, token_budget, lr_lambda, confirm" in said
    assert not (folder / "frozen" / "minibatch.yaml").exists()
    shown = lines(capsys, *asked)
    assert "open" in shown["minibatch"]
    assert "stale: minibatch is not frozen any more" in shown["kl"]
    assert cli.run(asked) == cli.DONE
    capsys.readouterr()
    assert all("frozen" in line and "stale" not in line for line in lines(capsys, *asked).values())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["thaw", "kl"], "what works: list, explain STAGE, unfreeze STAGE"),
        (["unfreeze"], "what works"),
        (["explain", "klm"], "stage must be one of minibatch"),
        (["list", "campaign=never"], "was never run"),
    ],
)
def test_what_cannot_be_done_is_said(asked, words, says, capsys):
    assert freeze.main([*asked, *words]) == 2
    assert says in capsys.readouterr().err
