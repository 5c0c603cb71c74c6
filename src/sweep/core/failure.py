"""`Cause`: why a trial ended early, as far as the next decision depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FailureClass(Enum):
    """The classes that the failure policy and the doctor share."""

    ENV_FAULT = "environment fault"
    INFEASIBLE_CONFIG = "infeasible configuration"
    OOM_GPU = "gpu out of memory"
    OOM_HOST = "host out of memory"
    HANG = "hang"
    SOFTWARE_BUG = "software bug"
    TEARDOWN_NOISE = "teardown noise"
    UNKNOWN = "unknown"


class Retry(Enum):
    """What running the trial again needs to make sense."""

    SAME = "same configuration again"
    RESUME = "from the last complete checkpoint"
    AFTER_FIX = "after the environment is fixed"
    NEW_CONFIG = "only with another configuration"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Cause:
    """What a console shows: the class, the cause in words (empty if nothing was recognised), and what would help.

    `fix` is in order of likelihood. `retry` None: nothing is known. `abort`: until somebody has mended it, every trial
    would end like this, unless it got past its first step.
    """

    failure_class: FailureClass
    text: str = ""
    fix: tuple[str, ...] = ()
    retry: Retry | None = None
    abort: bool = False
