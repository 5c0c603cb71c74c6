"""`FailureClass`: why a trial ended early, as far as the next decision depends on it."""

from __future__ import annotations

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
