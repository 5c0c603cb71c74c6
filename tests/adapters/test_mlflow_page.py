"""MLflow's own compare page, in a real browser, on what `MlflowTracker` wrote and `make ui` serves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.adapters.mlflow_connection import connect
from sweep.adapters.mlflow_tracker import MlflowTracker
from sweep.ports import CampaignInfo
from sweep.ui import server_command
from tests.adapters.store_stages import KL, finished, kl, proposal, score, trial, winner
from tests.headless_chromium import Browser, find_chromium

pytestmark = pytest.mark.slow
START_SECONDS, PAGE_SECONDS = 240, 240


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A campaign folder whose stage kl has a baseline and two candidates."""
    folder = tmp_path / "runs" / "a1"
    folder.mkdir(parents=True)
    tracker = MlflowTracker.open("", "a1", folder)
    tracker.campaign_started(CampaignInfo("a1", folder, ("kl",), {"seed": 3}))
    tracker.stage_started(kl)
    for settings, value in (({}, 0.5), ({KL: 0.002}, 0.7), ({KL: 0.004}, 0.6)):
        tracker.trial_started(kl, proposal(settings), trial(settings), folder / "trials")
        for step in range(1, 21):
            tracker.stepped(kl, trial(settings), step, {"critic/score/mean": value * step / 20})
        tracker.trial_ended(kl, trial(settings), finished(value), score(value))
    tracker.stage_frozen(kl, winner())
    tracker.campaign_ended(0)
    return folder


@pytest.fixture
def server(campaign: Path, tmp_path: Path) -> Iterator[str]:
    """The address of `make ui` for the campaign."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = server_command(["campaign=a1", f"runs={campaign.parent}", f"port={port}"])
    process = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield f"http://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


@pytest.mark.skipif(find_chromium() is None, reason="no chromium: MLflow's compare page is not looked at")
def test_the_compare_page_shows_a_stages_trials_side_by_side(campaign: Path, server: str, tmp_path: Path) -> None:
    client, experiment_id = connect("", "a1", campaign)
    runs = client.search_runs([experiment_id], "tags.`sweep.kind` = 'trial'", order_by=["attributes.start_time ASC"])
    ids = json.dumps([run.info.run_id for run in runs])
    page = f"{server}/#/compare-runs?runs={ids}&experiments={json.dumps([experiment_id])}"
    text = asyncio.run(_read(page, tmp_path / "compare.png", f"{server}/health"))
    lines = [line.split("\t") for line in text.splitlines()]
    assert [KL, "0.001", "0.002", "0.004"] in lines
    assert ["seed", "0", "0", "0"] in lines
    names = [text.index(name) for name in ("baseline seed 0", "kl_coef=0.002 seed 0", "kl_coef=0.004 seed 0")]
    assert names == sorted(names)
    assert (tmp_path / "compare.png").stat().st_size > 20_000


async def _read(page: str, picture: Path, health: str) -> str:
    async with Browser() as browser:
        for _ in range(START_SECONDS):
            await browser.open(health)
            if "OK" in await browser.text():
                break
            await asyncio.sleep(1)
        await browser.open(page)
        text = await browser.wait_for("Comparing 3 Runs", KL, "0.004", "objective", seconds=PAGE_SECONDS)
        await browser.screenshot(picture)
        return text
