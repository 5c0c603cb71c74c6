"""Seeds of a whole process, for what draws without a generator of its own."""

from __future__ import annotations

import random

import numpy as np
import torch

from sweep.engines.verl.plugins.sampling import request_seed


def seed_process(seed: int) -> None:
    """Every global random generator of this process, its devices' too, starts from the seed."""
    random.seed(request_seed("python", seed))
    np.random.seed(request_seed("numpy", seed) % 2**32)
    torch.manual_seed(request_seed("torch", seed))
