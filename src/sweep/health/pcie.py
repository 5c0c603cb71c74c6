"""PCIe traffic as a share of what the link can carry: `Link`, `busy_pct`. A share needs a known link.

nvidia-smi's utilisation table has no PCIe column; traffic comes from its throughput table or from NVML's counters.
"""

from __future__ import annotations

from dataclasses import dataclass

LANE_MB_PER_S = {1: 250.0, 2: 500.0, 3: 985.0, 4: 1969.0, 5: 3938.0, 6: 7563.0}
"""Megabytes a second of one lane and one direction, by generation. Source: PCI-SIG base specifications."""


@dataclass(frozen=True, slots=True)
class Link:
    """A GPU's PCIe link as it runs, and its maximum where known."""

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    capacity_mb_per_s: float | None = None

    @property
    def mb_per_s(self) -> float | None:
        """Capacity of one direction: as stated, else from generation and width; None if neither is known."""
        if self.capacity_mb_per_s:
            return self.capacity_mb_per_s
        lane = LANE_MB_PER_S.get(self.generation or 0)
        return lane * self.width if lane and self.width else None

    @property
    def degraded(self) -> bool:
        """Whether the link is known to run below its maximum (idle GPUs lower their generation by themselves)."""
        slower = bool(self.generation and self.max_generation and self.generation < self.max_generation)
        return slower or bool(self.width and self.max_width and self.width < self.max_width)


def busy_pct(received_mb_per_s: float, sent_mb_per_s: float, link: Link) -> float | None:
    """Percent of the link used by its busier direction; None if the link is unknown.

    The two directions are separate lanes, so their sum is no share of anything.
    """
    capacity = link.mb_per_s
    return None if capacity is None else 100 * max(received_mb_per_s, sent_mb_per_s) / capacity
