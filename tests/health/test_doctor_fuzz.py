"""The doctor on hostile input: it always answers, never raises, and its memory does not grow with the log."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.failure import FailureClass
from sweep.doctor import lines_of
from sweep.health.doctor import Diagnosis, diagnose_log
from sweep.health.doctor_catalog import load_catalog

EXAMPLES = [line for failure in load_catalog().failures for line in failure.examples]
FRAGMENTS = st.one_of(
    st.sampled_from(EXAMPLES),
    st.sampled_from(
        ["step:3 - a:1", "Training Progress: 100%|#| 5/5", "Saving model to /c/global_step_4/x", "  in wake_up"]
    ),
    st.text(max_size=60),
    st.from_regex(r"step:\d{1,30} - .{0,20}"),
    st.from_regex(r"Training Progress: .{0,10}\d{1,30}/\d{1,30}"),
)


def answers(found: Diagnosis) -> bool:
    return bool(found.code) and isinstance(found.failure_class, FailureClass) and found.line_number >= 0


@settings(deadline=None)
@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert answers(diagnose_log(text))


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_get_an_answer(content: bytes) -> None:
    assert answers(diagnose_log(lines_of(io.BytesIO(content))))


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=30), st.integers(0, 400))
def test_interleaved_and_truncated_logs_get_an_answer(fragments: list[str], cut: int) -> None:
    text = "\n".join(fragments)
    assert answers(diagnose_log(text[: max(0, len(text) - cut)]))


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=12), st.randoms(use_true_random=False))
def test_bytes_flipped_in_a_log_raise_nothing(fragments: list[str], random) -> None:  # type: ignore[no-untyped-def]
    content = bytearray("\n".join(fragments).encode("utf-8", "surrogatepass"))
    for _ in range(len(content) // 20):
        content[random.randrange(len(content))] = random.randrange(256)
    assert answers(diagnose_log(lines_of(io.BytesIO(bytes(content)))))


@settings(deadline=None)
@given(st.lists(FRAGMENTS, max_size=12))
def test_every_answer_is_plain_json(fragments: list[str]) -> None:
    import json

    assert json.loads(json.dumps(diagnose_log("\n".join(fragments)).to_json()))["code"]


def test_memory_does_not_grow_with_the_log() -> None:
    def endless(count: int) -> Iterator[str]:
        for number in range(count):
            yield f"(Worker pid={number}) request {number:x} failed with error {number * 7919:x}, cannot be retried"
            yield f"step:{number} - loss:{number}"
            yield f"ValueError: unlucky number {number}"

    peaks = []
    for count in (2_000, 20_000):
        tracemalloc.start()
        diagnose_log(endless(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 8_000_000


def test_a_file_without_line_ends_is_read_in_pieces() -> None:
    pieces = list(lines_of(io.BytesIO(b"x" * 200_000)))
    assert max(map(len, pieces)) <= 1 << 16
    assert sum(map(len, pieces)) == 200_000
