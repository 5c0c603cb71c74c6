"""Fingerprints of tensors, computed on the accelerator if there is one: equal bits, equal fingerprint.

Two 64-bit sums over the bits of a tensor, one of them weighted by position, so that a changed, a moved and a swapped
value all show. Integer sums do not depend on the order of summation, so a CPU and a GPU agree.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 1 << 22
"""Elements looked at together: bounds the memory for 64-bit copies to 0.1 GiB."""
_PERIOD = 65_521
"""Weights of positions repeat after so many elements: the largest prime below 2^16."""

Fingerprint = tuple[int, int]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """(sum of the bits, sum of the bits times position), each modulo 2^64.

    A tensor in host memory, as verl keeps a reference model's, goes to the accelerator part by part: a CPU takes
    seconds for a hundred million weights.
    """
    bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
    device = "cuda" if torch.cuda.is_available() else bits.device
    total, weighted = 0, 0
    for start in range(0, bits.numel(), _CHUNK):
        part = bits[start : start + _CHUNK].to(device).long()
        positions = torch.arange(start, start + part.numel(), device=part.device) % _PERIOD + 1
        total += int(part.sum())
        weighted += int((part * positions).sum())
    return total % 2**64, weighted % 2**64


def fingerprints(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Fingerprint]:
    """Name to fingerprint, in the order given."""
    return {name: fingerprint(tensor) for name, tensor in named}
