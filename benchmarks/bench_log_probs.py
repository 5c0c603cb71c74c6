"""Log-probabilities without flash attention: verl's rows against our blocks, side by side, forward and backward.

    python benchmarks/bench_log_probs.py [cpu|cuda] [--tokens 8192] [--vocabulary 49152] [--dtype bfloat16]

The last line is one JSON object; `ratio` is verl's time over ours, the median over alternating repetitions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import date
from statistics import median

import torch

from sweep.engines.verl.plugins.log_probs import log_probs
from sweep.engines.verl.plugins.log_probs_hook import verls_rows

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
REPEATS = 5


def seconds(function: Function, logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Of one forward and one backward pass."""
    wait = torch.cuda.synchronize if logits.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    function(logits, labels).sum().backward()
    wait()
    logits.grad = None
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    shape = (given.tokens, given.vocabulary)
    logits = torch.randn(shape, device=given.device, dtype=getattr(torch, given.dtype)).requires_grad_()
    labels = torch.randint(given.vocabulary, shape[:1], device=given.device)
    both = [(seconds(verls_rows, logits, labels), seconds(log_probs, logits, labels)) for _ in range(REPEATS + 1)][1:]
    found = {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
        **vars(given),
        "verl_seconds": median(a for a, _ in both),
        "ours_seconds": median(b for _, b in both),
        "ratio": median(a / b for a, b in both),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
