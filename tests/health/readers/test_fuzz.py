"""Damaged, mixed and hostile input: a diagnosis or a clear refusal, never anything else."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.errors import ConfigError
from sweep.health.diagnosis import diagnose
from sweep.health.readers.console import read_console
from sweep.health.readers.csv_export import read_csv
from sweep.health.readers.jsonl import read_jsonl
from sweep.health.readers.open_log import read_lines, read_runs

REAL = Path(__file__).parents[2] / "data" / "real_logs"
SAMPLES = [path.read_bytes()[:12_000] for path in sorted(REAL.iterdir()) if path.suffix != ".md"]
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

METRIC = st.sampled_from(
    [
        "critic/score/mean",
        "actor/grad_norm",
        "actor/reward_kl_penalty",
        "actor/entropy",
        "critic/vf_loss",
        "timing_s/step",
    ]
)
NUMBER = st.one_of(
    st.floats(), st.integers(-(10**30), 10**30), st.sampled_from(["nan", "np.float64(0.5)", "", "0.000"])
)
PIECE = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda step, name, number: f"step:{step} - {name}:{number}".encode(), st.integers(-5, 10**13), METRIC, NUMBER
    ),
    st.builds(lambda n, text: b'{"step": %d, "data": {%s' % (n, text), st.integers(0, 99), st.binary(max_size=40)),
    st.sampled_from(
        [
            b"step,critic/score/mean",
            b"1,0.5",
            b"(A pid=1) ",
            b"\x1b[36m(B pid=2)\x1b[0m ",
            b" - ",
            b":",
            b"step:",
            b"\n",
        ]
    ),
)


def survives(lines: list[bytes]) -> None:
    """Reads and diagnoses the lines with each reader; anything but a `ConfigError` fails the test."""
    for reader in (read_lines, read_console, read_jsonl, read_csv):
        try:
            runs = reader(iter(lines))
        except ConfigError as refusal:
            assert str(refusal)
            continue
        for run in runs:
            diagnosis = diagnose(run.table)
            assert diagnosis.verdict and diagnosis.to_json()["steps"] == len(run.table)


@FUZZ
@given(st.lists(PIECE, max_size=30))
def test_pieces_of_logs_in_any_order(pieces: list[bytes]) -> None:
    survives(b"".join(pieces).split(b"\n"))
    survives(pieces)


@FUZZ
@given(st.sampled_from(SAMPLES), st.integers(0, 12_000), st.integers(0, 12_000))
def test_real_logs_cut_at_both_ends(sample: bytes, first: int, last: int) -> None:
    survives(sample[min(first, last) : max(first, last)].split(b"\n"))


@FUZZ
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 11_999), st.integers(0, 255)), max_size=40))
def test_real_logs_with_bytes_changed(sample: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(sample)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    survives(bytes(damaged).split(b"\n"))


@FUZZ
@given(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES), st.integers(1, 400), st.integers(0, 2**31))
def test_two_logs_written_into_each_other(one: bytes, other: bytes, size: int, seed: int) -> None:
    draw = random.Random(seed)
    mixed = b""
    while one or other:
        take = draw.randrange(1, size + 1)
        mixed, one, other = mixed + one[:take] + other[:take], one[take:], other[take:]
    survives(mixed.split(b"\n"))


@FUZZ
@given(st.binary(max_size=4000))
def test_binary_content_in_a_file(content: bytes) -> None:
    path = Path(_folder) / "x"
    path.write_bytes(content)
    try:
        runs = read_runs(str(path))
    except ConfigError:
        return
    assert all(diagnose(run.table).verdict for run in runs)


@pytest.mark.parametrize(
    "line",
    [
        b"step:1" + b" - a:1" * 200_000,
        b"step:1 - " + b"x" * 2_000_000 + b":1",
        b"step:1 - a:" + b"9" * 300_000,
        b"{" * 100_000,
        b'{"step": 1, "data": ' + b'{"a": ' * 50_000,
        b"step," + b"m," * 100_000,
        b"step:" * 200_000,
        b"(A pid=1) " * 100_000,
        b" - " * 500_000,
        b"step:1 - " + b"a" * 100 + b" " * 500_000,
        b"step:1 - a:" + b"- " * 300_000,
    ],
    ids=lambda line: line[:24].decode(),
)
def test_huge_lines_take_no_more_than_seconds(line: bytes) -> None:
    begun = time.process_time()
    survives([line, b"step:2 - a:1", line])
    assert time.process_time() - begun < 20


_folder = "."


@pytest.fixture(autouse=True, scope="module")
def _in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    global _folder
    _folder = str(tmp_path_factory.mktemp("fuzz"))
