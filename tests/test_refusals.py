"""What is refused before a campaign starts; nothing is written for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.adapters.optuna_store import OptunaStore
from sweep.cli import CONFIGURATION, DONE, run
from sweep.config import compose, to_plan
from sweep.core.plan import CampaignPlan
from sweep.errors import ConfigError
from sweep.refusals import refuse_bad_request
from tests.adapters.store_stages import kl, proposal, trial


def planned(runs: Path, *asked: str) -> CampaignPlan:
    return to_plan(compose(["engine=rehearsal", f"runs={runs}", "campaign=new", *asked]))


def held(url: str, *campaigns: str) -> str:
    """The storage with a trial of each campaign."""
    for name in campaigns:
        store = OptunaStore.open(url, name)
        store.intend(kl, proposal(), trial())
        store.close()
    return url


def test_a_mistyped_earlier_campaign_is_refused_with_those_that_a_shared_storage_has(tmp_path: Path) -> None:
    url = held(f"sqlite:///{tmp_path}/shared.db", "h200", "a100")
    refuse_bad_request(planned(tmp_path / "runs", f"storage={url}", "earlier=h200"))
    with pytest.raises(ConfigError, match=r"campaign h20 was never run: .*shared\.db has a100, h200; name one"):
        refuse_bad_request(planned(tmp_path / "runs", f"storage={url}", "earlier=h20"))
    assert not (tmp_path / "runs").exists()


def test_an_earlier_campaign_without_a_file_or_without_a_stage_in_it_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, "earlier=other")
    with pytest.raises(ConfigError, match="campaign other was never run: there is no "):
        refuse_bad_request(plan)
    assert list(tmp_path.iterdir()) == []
    held(plan.earlier_url)
    OptunaStore.open(plan.earlier_url, "other").close()
    with pytest.raises(ConfigError, match=r"campaign other was never run: .*optuna\.db has no campaign"):
        refuse_bad_request(plan)
    held(plan.earlier_url, "other")
    refuse_bad_request(plan)


def test_trials_of_another_engine_are_refused_in_the_campaign_and_as_an_earlier_one(tmp_path: Path) -> None:
    rehearsed = planned(tmp_path, "campaign=other")
    store = OptunaStore.open(rehearsed.storage_url, "other", engine="rehearsal")
    store.intend(kl, proposal(), trial())
    store.close()
    refuse_bad_request(rehearsed)
    with pytest.raises(ConfigError, match=r"campaign other was run with engine=rehearsal, .* choose another campaign="):
        refuse_bad_request(planned(tmp_path, "campaign=other", "engine=verl"))
    refuse_bad_request(planned(tmp_path, "earlier=other"))
    with pytest.raises(ConfigError, match=r"campaign other was run with engine=rehearsal, .* leave earlier out"):
        refuse_bad_request(planned(tmp_path, "earlier=other", "engine=verl"))


def test_a_rehearsed_campaign_is_neither_priced_nor_run_as_a_real_one(tmp_path: Path) -> None:
    asked = ["engine=rehearsal", "stage=minibatch", "budget.steps=8", "campaign=a", f"runs={tmp_path}"]
    assert run(asked) == DONE
    assert run([*asked, "plan=true"]) == DONE
    assert run([*asked[1:], "plan=true"]) == run(asked[1:]) == CONFIGURATION


SEARCHED = ("stages.kl.rule=search", "stage=kl")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("stages.kl.search.sampler=BruteForceSampler", *SEARCHED), "cannot use sampler BruteForceSampler: .*step"),
        (("stages.kl.search.sampler=GridSampler", *SEARCHED), "cannot use sampler GridSampler"),
        (("stages.kl.search.sampler=CmaEsSampler", *SEARCHED), "CmaEsSampler draws a single knob at random"),
        (("stages.kl.search.sampler=Nope",), r"stages\.kl\.search\.sampler is Nope; Optuna has .*TPESampler"),
    ],
)
def test_a_sampler_that_cannot_draw_or_does_not_exist_is_refused_whether_it_is_used_or_not(
    tmp_path: Path, asked: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        refuse_bad_request(planned(tmp_path, *asked))


def test_only_samplers_that_work_for_the_stage_are_offered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"asks for sampler Nope; here work .*RandomSampler, TPESampler") as caught:
        refuse_bad_request(planned(tmp_path, "stages.kl.search.sampler=Nope", *SEARCHED))
    assert "BruteForce" not in str(caught.value) and "Grid" not in str(caught.value)


def test_samplers_are_tried_out_without_a_warning_at_each_draw(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_bad_request(planned(tmp_path, "stages.kl.search.sampler=QMCSampler", *SEARCHED))
    assert [str(w.message) for w in recwarn] == [] and caplog.text == ""
