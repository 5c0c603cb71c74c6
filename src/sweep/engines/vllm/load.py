"""`send_together`: requests that a completions server is working on at the same time, and what became of each."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.engines.vllm.server import HOST, SERVED_NAME
from sweep.health.pressure_verdict import Answers


@dataclass(frozen=True, slots=True)
class Reply:
    """One request: when it was sent and answered (by a monotonic clock), tokens generated, and what went wrong."""

    sent_at: float
    answered_at: float
    tokens: int = 0
    error: str = ""


def send_together(
    port: int, prompts: Sequence[Sequence[int]], max_tokens: int, timeout_seconds: float
) -> tuple[Reply, ...]:
    """One reply a prompt, in order; all are sent at once, each from a thread of its own, and generate `max_tokens`."""
    replies: list[Reply | None] = [None] * len(prompts)
    start = threading.Barrier(len(prompts))

    def ask(place: int) -> None:
        start.wait()
        replies[place] = _ask(port, prompts[place], max_tokens, timeout_seconds)

    threads = [threading.Thread(target=ask, args=(place,), daemon=True) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(reply for reply in replies if reply is not None)


def answers(rounds: Iterable[Sequence[Reply]], max_tokens: int) -> Answers:
    """The sum over rounds that were sent one after the other; complete is a reply with all its tokens."""
    rounds = list(rounds)
    replies = [reply for one in rounds for reply in one]
    errors = [r.error or f"{r.tokens} of {max_tokens} tokens" for r in replies if r.error or r.tokens < max_tokens]
    return Answers(
        sent=len(replies),
        complete=len(replies) - len(errors),
        tokens=sum(reply.tokens for reply in replies),
        seconds=sum(max(r.answered_at for r in one) - min(r.sent_at for r in one) for one in rounds if one),
        most_at_once=max((most_at_once(one) for one in rounds), default=0),
        error=errors[0] if errors else "",
    )


def most_at_once(replies: Sequence[Reply]) -> int:
    """The most requests that were under way at one moment."""
    changes = [(r.sent_at, 1) for r in replies] + [(r.answered_at, -1) for r in replies]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def _ask(port: int, prompt: Sequence[int], max_tokens: int, timeout_seconds: float) -> Reply:
    body = {
        "model": SERVED_NAME,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "ignore_eos": True,  # vLLM's own: every request generates all its tokens
        "temperature": 1.0,
    }
    sent_at = time.monotonic()
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_seconds)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        tokens, error = _read(answer.status, text)
    except (OSError, http.client.HTTPException) as problem:
        tokens, error = 0, f"{type(problem).__name__}: {problem}"
    finally:
        connection.close()
    return Reply(sent_at, time.monotonic(), tokens, error)


def _read(status: int, text: str) -> tuple[int, str]:
    """Tokens generated, or what is wrong with the answer."""
    if status != http.HTTPStatus.OK:
        return 0, f"HTTP {status}: {text[:200]}"
    try:
        content: Any = json.loads(text)
        return int(content["usage"]["completion_tokens"]), ""
    except (ValueError, KeyError, TypeError):
        return 0, f"not a completion: {text[:200]}"
