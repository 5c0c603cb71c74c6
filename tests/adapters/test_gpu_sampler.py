"""The sampler's pace and what it keeps; the readings are scripted."""

from __future__ import annotations

import time

from sweep.adapters import gpu_sampler
from sweep.adapters.gpu_reading import GpuReading
from sweep.adapters.gpu_sampler import INTERVAL_SECONDS, GpuSampler
from tests.engines.vllm.test_own_process import eventually


class ScriptedReader:
    """A fake reader: one GPU, its memory counts the looks."""

    problem = ""

    def __init__(self) -> None:
        self.looks = 0
        self.closed = False

    def __call__(self) -> tuple[GpuReading, ...]:
        self.looks += 1
        return (GpuReading(float(self.looks), 0, free_gib=float(self.looks)),)

    def close(self) -> None:
        self.closed = True


def test_the_articles_interval_is_the_default() -> None:
    assert INTERVAL_SECONDS == 2.0


def test_the_first_reading_is_there_at_once_and_is_taken_once() -> None:
    sampler = GpuSampler(ScriptedReader(), 60.0)
    assert [r.free_gib for r in sampler.take()] == [1.0]
    assert sampler.take() == []
    sampler.close()


def test_readings_come_in_order_at_the_interval_until_it_is_closed() -> None:
    reader = ScriptedReader()
    began = time.monotonic()
    sampler = GpuSampler(reader, 0.02)
    eventually(lambda: reader.looks >= 5)
    sampler.close()
    sampler.close()
    looks = reader.looks
    assert [r.free_gib for r in sampler.take()] == [float(i + 1) for i in range(looks)]
    assert looks <= 1 + (time.monotonic() - began) / 0.02
    time.sleep(0.06)
    assert reader.looks == looks and reader.closed


def test_what_nobody_fetches_does_not_grow_without_end(monkeypatch: object) -> None:
    sampler = GpuSampler(ScriptedReader(), 0.001)
    sampler._kept = type(sampler._kept)(sampler._kept, maxlen=3)
    eventually(lambda: sampler._kept[0].free_gib > 5)  # type: ignore[operator]
    sampler.close()
    assert len(sampler.take()) == 3
    assert gpu_sampler.KEPT_READINGS > 8 * 1800  # an hour of eight GPUs


def test_the_readers_problem_is_passed_on() -> None:
    reader = ScriptedReader()
    reader.problem = "no NVIDIA driver answers"
    sampler = GpuSampler(reader, 60.0)
    assert sampler.problem() == "no NVIDIA driver answers"
    sampler.close()
