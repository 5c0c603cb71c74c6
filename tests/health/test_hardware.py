"""Hardware patterns over samples, replayed traces, and PCIe shares."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from sweep.core import verl_keys as keys
from sweep.errors import ConfigError
from sweep.health.code import Code
from sweep.health.finding import Finding, Severity
from sweep.health.gpu_trace import read_trace
from sweep.health.hardware import GpuSample, HardwareFacts, HardwareLimits, hardware
from sweep.health.pcie import Link, busy_pct


def series(count: int, **values: object) -> list[GpuSample]:
    """Samples two seconds apart; a list gives one value a sample."""
    return [
        GpuSample(2.0 * n, 0, **{k: v[n] if isinstance(v, list) else v for k, v in values.items()})  # type: ignore[arg-type]
        for n in range(count)
    ]


def found(samples: list[GpuSample], facts: HardwareFacts | None = None) -> list[Code]:
    return [f.code for f in hardware(samples, facts)]


@pytest.mark.parametrize(("busy", "idle"), [(29.0, True), (30.0, False)])
def test_a_gpu_under_thirty_percent_with_full_memory_is_bound_by_input_or_rollout(busy: float, idle: bool) -> None:
    samples = series(10, utilisation_pct=busy, total_gib=80.0, free_gib=2.0)
    assert (Code.INPUT_OR_ROLLOUT_BOUND in found(samples)) is idle


@pytest.mark.parametrize(("free", "full"), [(7.9, True), (8.1, False)])
def test_memory_is_full_from_nine_tenths(free: float, full: bool) -> None:
    samples = series(10, utilisation_pct=5.0, total_gib=80.0, free_gib=free)
    assert (Code.INPUT_OR_ROLLOUT_BOUND in found(samples)) is full


def test_an_idle_gpu_with_empty_memory_is_just_idle() -> None:
    assert found(series(10, utilisation_pct=0.0, total_gib=80.0, free_gib=79.0)) == []


@pytest.mark.parametrize(
    ("share", "knob"),
    [(0.7, "max_num_batched_tokens"), (0.2, "dataloader_num_workers"), (None, "dataloader_num_workers")],
)
def test_the_rollout_share_decides_where_to_turn(share: float | None, knob: str) -> None:
    samples = series(10, utilisation_pct=5.0, total_gib=80.0, free_gib=2.0)
    (finding,) = hardware(samples, HardwareFacts(gen_share=share))
    assert finding.direction[0].knob.endswith(knob)


@pytest.mark.parametrize(("count", "sustained"), [(4, False), (5, True)])
def test_a_pattern_must_last_for_ten_seconds(count: int, sustained: bool) -> None:
    samples = series(count, utilisation_pct=5.0, total_gib=80.0, free_gib=2.0)
    assert (Code.INPUT_OR_ROLLOUT_BOUND in found(samples)) is sustained


@pytest.mark.parametrize(("busy", "pcie", "bound"), [(86.0, 71.0, True), (84.0, 71.0, False), (86.0, 70.0, False)])
def test_a_busy_gpu_with_a_busy_link_is_bound_by_communication(busy: float, pcie: float, bound: bool) -> None:
    samples = series(10, utilisation_pct=busy, pcie_pct=pcie)
    assert (Code.COMMUNICATION_BOUND in found(samples)) is bound


def test_without_utilisation_a_busy_link_is_only_a_condition() -> None:
    (finding,) = hardware(series(10, pcie_pct=90.0))
    assert finding.severity is Severity.INFO and "only if utilisation" in finding.seen


def test_a_burst_of_traffic_is_not_sustained() -> None:
    assert found(series(10, utilisation_pct=95.0, pcie_pct=[90.0] * 5 + [5.0] * 5)) == []


SLEEPING = [6.0, 6.0, 25.0, 26.0, 25.0, 25.0] * 3
PHASES = ["gen", "gen", "log_prob", "update", "update", "update"] * 3


def test_swings_that_go_with_the_phases_are_the_rollout_freeing_its_cache() -> None:
    assert found(series(18, free_gib=SLEEPING, phase=PHASES)) == []
    assert found(series(18, free_gib=SLEEPING)) == []


def test_the_same_swings_count_where_the_rollout_keeps_its_cache() -> None:
    kept = HardwareFacts(free_cache_engine=False)
    (finding,) = hardware(series(18, free_gib=SLEEPING), kept)
    assert finding.code is Code.MEMORY_FLUCTUATION
    assert finding.direction[0].knob == keys.ACTOR_DYNAMIC_BATCH


@pytest.mark.parametrize(("swing", "wide"), [(3.9, False), (4.1, True)])
def test_swings_within_a_phase_count_from_two_gib_a_second(swing: float, wide: bool) -> None:
    samples = series(12, free_gib=[20.0, 20.0 + swing] * 6, phase="update")
    assert (Code.MEMORY_FLUCTUATION in found(samples)) is wide


def test_memory_that_is_only_taken_does_not_swing() -> None:
    assert found(series(8, free_gib=[80.0 - 10 * n for n in range(8)], phase="load")) == []


def test_gpus_are_judged_apart_in_order() -> None:
    idle = series(10, utilisation_pct=5.0, total_gib=80.0, free_gib=2.0)
    samples = [replace(s, gpu=3) for s in idle] + [replace(s, gpu=1) for s in idle] + series(10, utilisation_pct=95.0)
    assert [f.metric for f in hardware(samples)] == ["gpu/1", "gpu/3"]


def test_no_samples_no_findings() -> None:
    assert hardware([]) == ()


def test_a_limit_can_be_replaced() -> None:
    samples = series(10, utilisation_pct=40.0, total_gib=80.0, free_gib=2.0)
    assert [f.code for f in hardware(samples, None, HardwareLimits(idle_pct=50.0))] == [Code.INPUT_OR_ROLLOUT_BOUND]


# PCIe.


def test_the_busier_direction_counts_against_the_link() -> None:
    link = Link(generation=4, width=16)
    assert busy_pct(22_500, 1_200, link) == pytest.approx(71.4, abs=0.1)
    assert busy_pct(310, 290, Link(capacity_mb_per_s=31_500)) == pytest.approx(0.98, abs=0.01)


def test_an_unknown_link_gives_no_percentage() -> None:
    assert busy_pct(22_500, 1_200, Link()) is None
    assert Link(generation=9, width=16).mb_per_s is None


@pytest.mark.parametrize(
    ("link", "degraded"),
    [
        (Link(4, 16, 4, 16), False),
        (Link(4, 8, 4, 16), True),
        (Link(1, 16, 4, 16), True),
        (Link(4, 16), False),
    ],
)
def test_a_link_below_its_maximum_is_degraded(link: Link, degraded: bool) -> None:
    assert link.degraded is degraded


# Traces.

DMON_T = """# gpu  rxpci  txpci
# Idx   MB/s   MB/s
    0  22500   1200
    1    310    290
    0  22600   1100
    1      -      -
"""
DMON_U = """# gpu     sm    mem    enc    dec
# Idx      %      %      %      %
    0     90     40      0      0
"""
QUERY = """utilization.gpu [%], utilization.memory [%], memory.total [MiB], memory.free [MiB]
12 %, 3 %, 81920 MiB, 1024 MiB
15 %, 3 %, 81920 MiB, 1024 MiB
"""


def test_a_throughput_table_gives_shares_where_the_link_is_known() -> None:
    trace = read_trace(DMON_T, {0: Link(4, 16)})
    assert [(s.gpu, s.seconds) for s in trace] == [(0, 0.0), (1, 0.0), (0, 2.0), (1, 2.0)]
    assert trace[0].pcie_pct == pytest.approx(71.4, abs=0.1)
    assert trace[1].pcie_pct is None and trace[3].pcie_pct is None


def test_a_utilisation_table_holds_no_traffic() -> None:
    (sample,) = read_trace(DMON_U, {0: Link(4, 16)})
    assert sample.utilisation_pct == 90.0 and sample.pcie_pct is None


def test_the_query_of_the_article_is_read() -> None:
    trace = read_trace(QUERY)
    assert [s.seconds for s in trace] == [0.0, 2.0]
    assert trace[0].utilisation_pct == 12.0 and trace[0].used_share == pytest.approx(1 - 1 / 80)


def test_recorded_samples_replay_to_the_same_findings() -> None:
    samples = series(10, utilisation_pct=5.0, total_gib=80.0, free_gib=2.0, phase="gen")
    replayed = read_trace("\n".join(json.dumps(asdict(sample)) for sample in samples))
    assert replayed == tuple(samples)
    assert hardware(replayed) == hardware(samples) != ()


@pytest.mark.parametrize(("busy", "slow", "seen"), [(90.0, 6, True), (90.0, 5, False), (5.0, 10, False)])
def test_a_link_below_its_maximum_is_a_remark_while_the_gpu_works(busy: float, slow: int, seen: bool) -> None:
    found = hardware(series(10, utilisation_pct=busy, link_degraded=[True] * slow + [False] * (10 - slow)))
    assert [(f.code, f.severity) for f in found] == ([(Code.LINK_DEGRADED, Severity.INFO)] if seen else [])


@pytest.mark.parametrize("text", ["", "hello", '{"gpu": 0}', "{broken"])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_trace(text)


def test_findings_are_values() -> None:
    samples = series(10, utilisation_pct=5.0, total_gib=80.0, free_gib=2.0)
    assert all(isinstance(f, Finding) and hash(f) for f in hardware(samples))
