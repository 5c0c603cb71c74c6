"""frozen/*.yaml: always what the store says, whatever happens to the files."""

from __future__ import annotations

import yaml

from sweep.adapters.frozen_files import FrozenFiles
from sweep.core.winner import Winner
from sweep.ports import CampaignInfo
from tests.fakes_store import MemoryStore
from tests.test_campaign import Bench


def test_files_come_back_from_the_store_and_an_edited_one_is_written_anew(tmp_path):
    bench = Bench(tmp_path)
    winners = bench.run()
    files = FrozenFiles(tmp_path, MemoryStore(bench.disk))
    info = CampaignInfo("x", tmp_path, ())
    files.campaign_started(info)
    written = {p.stem: p.read_text() for p in (tmp_path / "frozen").glob("*.yaml")}
    assert sorted(written) == sorted(w.stage for w in winners)
    kl = tmp_path / "frozen" / "kl.yaml"
    kl.write_text("winner: mine")
    (tmp_path / "frozen" / "lr_lambda.yaml").unlink()
    (tmp_path / "frozen" / "gone.yaml").write_text("stage: gone")
    files.campaign_started(info)
    assert {p.stem: p.read_text() for p in (tmp_path / "frozen").glob("*.yaml")} == written


def test_a_file_holds_everything_that_the_winner_is(tmp_path):
    bench = Bench(tmp_path)
    winner = bench.run()[1]
    FrozenFiles(tmp_path, MemoryStore(bench.disk)).stage_frozen(bench.plan.stage("kl"), winner)
    content = yaml.safe_load((tmp_path / "frozen" / "kl.yaml").read_text())
    assert Winner.from_json(content).to_json() == winner.to_json()
    assert content["trials"] and content["stands_on"] and content["reason"]


def test_files_that_cannot_be_written_are_warned_about_and_end_nothing(tmp_path, caplog):
    bench = Bench(tmp_path / "campaign")
    winner = bench.run()[0]
    (tmp_path / "frozen").write_text("a file where the folder should be")
    files = FrozenFiles(tmp_path, MemoryStore(bench.disk))
    files.stage_frozen(bench.plan.stage("minibatch"), winner)
    assert "cannot write frozen/minibatch.yaml" in caplog.text and "comes back" in caplog.text
