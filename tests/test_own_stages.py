"""A stage of the user's own is a file in `sweeps/` and nothing else: any sampler, objective or own code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sweep import wiring
from sweep.adapters.optuna_store import OptunaStore
from sweep.config import ROOT, compose, to_plan
from sweep.errors import ConfigError

REHEARSED = ("engine=rehearsal", "model=qwen2.5-0.5b", "budget.steps=30")
SEARCH = """\
knobs:
  clip: {{key: actor_rollout_ref.actor.clip_ratio_low, low: 0.1, high: 0.4}}
  ent: {{key: actor_rollout_ref.actor.entropy_coeff, low: 0.0001, high: 0.01, log: true}}
rule: search
search:
  sampler: {sampler}
  start: [[actor_rollout_ref.actor.clip_ratio_low=0.2, actor_rollout_ref.actor.entropy_coeff=0.001]]
objective: {objective}
constraints:
  drift: {{series: kl_nats, statistic: max, high: {high}}}
budget: {{trials: 4, steps: 30, seeds: 1, warmup_steps: 2}}
follows: []
"""
OWN = """\
knobs: {clip: {key: actor_rollout_ref.actor.clip_ratio_low, low: 0.1, high: 0.4}}
rule: tests.own_rule:middle_of_the_range
objective: tests.own_rule:last_score
budget: {trials: 2, steps: 30}
follows: [minibatch]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("conf", "sweeps"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def run(root: Path, text: str, *asked: str):
    """The stage `clip` rehearsed: its winner and its records."""
    (root / "sweeps" / "clip.yaml").write_text(text)
    config = compose([*REHEARSED, f"runs={root / 'runs'}", *asked], root)
    plan = to_plan(config)
    wiring.run_campaign(config, plan)
    store = OptunaStore.open(plan.storage_url, plan.name, driver=False)
    try:
        return {w.stage: w for w in store.winners()}["clip"], store.records(plan.stage("clip"))
    finally:
        store.close()


@pytest.mark.parametrize("sampler", ["TPESampler", "RandomSampler", "QMCSampler"])
def test_any_sampler_searches_two_knobs(root, sampler):
    winner, records = run(root, SEARCH.format(sampler=sampler, objective="height_and_smoothness", high=9), "stage=clip")
    assert winner.rule == "SearchRule"
    values = {r.settings.get("actor_rollout_ref.actor.clip_ratio_low") for r in records}
    assert {None, 0.2} < values
    assert len(records) == 4
    assert all(v is None or 0.1 <= v <= 0.4 for v in values)


def test_a_constraint_that_every_candidate_breaks_keeps_the_baseline(root):
    winner, _ = run(root, SEARCH.format(sampler="TPESampler", objective="reward_in_band", high=0), "stage=clip")
    assert len(winner.choice.settings) == 0


def test_a_rule_and_an_objective_of_ones_own_by_import_path_after_another_stage(root):
    winner, records = after_minibatch(root)
    assert winner.choice.reason == "the middle, unseen"
    assert winner.choice.settings.get("actor_rollout_ref.actor.clip_ratio_low") == 0.25
    assert winner.upstream[0][0] == "minibatch"
    assert winner.choice.score.value == records[0].finished.curve.score[-1]


def after_minibatch(root: Path, text: str = OWN):
    """The stage with its own code, on top of a first one."""
    (root / "sweeps" / "clip.yaml").write_text(text)
    config = compose([*REHEARSED, f"runs={root / 'runs'}", "stage=minibatch"], root)
    wiring.run_campaign(config, to_plan(config))
    return run(root, text, "stage=clip")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rule: search", "rule: guess", r"sweeps/clip\.yaml: rule must be one of .*'guess'"),
        ("objective: height_and_smoothness", "objective: luck", "objective must be one of"),
        ("  ent:", "  three: {key: a.b, low: 1, high: 2}\n  ent:", "one or two knobs, got 3"),
        ("constraints:", "constraint:", "unknown key constraint"),
    ],
)
def test_a_file_that_cannot_work_is_named_with_the_key(root, old, new, says):
    text = SEARCH.format(sampler="TPESampler", objective="height_and_smoothness", high=9).replace(old, new)
    (root / "sweeps" / "clip.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        to_plan(compose([], root))


def test_the_example_of_the_documentation_runs(root, monkeypatch):
    page = (ROOT / "docs" / "own-stages.md").read_text()
    blocks = {kind: re.search(rf"```{kind}\n(.*?)```", page, flags=re.S).group(1) for kind in ("yaml", "python")}
    (root / "clip_rules.py").write_text(blocks["python"])
    monkeypatch.syspath_prepend(root)
    winner, records = after_minibatch(root, blocks["yaml"])
    assert winner.choice.reason == "the highest of three"
    assert [r.settings.get("actor_rollout_ref.actor.clip_ratio_low") for r in records] == [None, 0.1, 0.4]
    assert winner.choice.score.value == max(r.finished.curve.score[-1] for r in records)
