"""Requests that run at the same time, against a fake server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.failure import FailureClass
from sweep.engines.vllm.load import Reply, answers, most_at_once, send_together
from sweep.engines.vllm.server import ServerSettings, VllmServer, free_port


@pytest.fixture
def server(fake_vllm: Path, model: Path, tmp_path: Path) -> Iterator[VllmServer]:
    found = VllmServer(ServerSettings(str(model)), tmp_path / "console", lambda log: (FailureClass.UNKNOWN, ""))
    found.await_ready(60.0)
    yield found
    found.close()


def test_ten_requests_are_under_way_at_once_and_all_tokens_come(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = send_together(server.port, [[1, 2, 3]] * 10, 128, 30.0)
    found = answers([replies], 128)
    assert (found.sent, found.complete, found.tokens, found.error) == (10, 10, 1280, "")
    assert found.most_at_once == 10
    assert 0 < found.seconds < 30


def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    found = answers([send_together(free_port(), [[1]] * 3, 8, 2.0)], 8)
    assert (found.sent, found.complete) == (3, 0)
    assert "ConnectionRefusedError" in found.error


def test_a_reply_with_too_few_tokens_is_not_complete() -> None:
    found = answers([[Reply(0.0, 1.0, 8), Reply(0.0, 2.0, 7)]], 8)
    assert (found.complete, found.error, found.seconds) == (1, "7 of 8 tokens", 2.0)


def test_time_between_rounds_does_not_count() -> None:
    found = answers([[Reply(0.0, 1.0, 8)], [Reply(5.0, 7.0, 8)]], 8)
    assert (found.seconds, found.tokens_per_s) == (3.0, 16 / 3)


@pytest.mark.parametrize(
    ("spans", "most"),
    [([(0, 2), (1, 3), (2, 4)], 2), ([(0, 1), (1, 2)], 1), ([(0, 9), (1, 2), (3, 4)], 2), ([], 0)],
    ids=["chain", "one after the other", "one long", "none"],
)
def test_requests_that_only_touch_are_not_at_once(spans: list[tuple[float, float]], most: int) -> None:
    assert most_at_once([Reply(a, b) for a, b in spans]) == most
